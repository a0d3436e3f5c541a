// Package local is the in-process tier. It has two memories of what Redis said:
//
//   - [Denials]: keys that Redis denied, until when. What is plainly over the
//     limit is denied again without a trip. Bounded, lossy, and only ever a hint.
//   - [Leases]: units that Redis charged in advance, and that are spent here.
//
// Package ledger below it is the record of this instance's own grants, from which decisions are
// made when Redis is out of reach.
//
// All know keys by a hash only ([Hasher]) and take the time as an argument, in
// nanoseconds on a clock that does not go backwards.
package local
