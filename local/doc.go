// Package local is the in-process tier. It remembers three kinds of Redis's answers:
//
//   - [Denials]: keys that Redis denied, and until when. What is plainly over the
//     limit is denied again without a trip. Bounded, lossy, and only ever a hint.
//   - [Leases]: units that Redis charged in advance, and that are spent here.
//   - [Slots]: units of concurrency limits that this process holds.
//
// Package ledger below it records this instance's own grants, from which decisions are made when
// Redis cannot be reached.
//
// Denials, leases and the ledger identify keys by a hash ([Hasher]), slots by the key itself. All take the
// time as an argument, in nanoseconds on a clock that does not go backwards.
package local
