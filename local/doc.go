// Package local is the in-process tier. It has two memories of what Redis said:
//
//   - [Denials]: keys that Redis denied, until when. What is plainly over the
//     limit is denied again without a trip. Bounded, lossy, and only ever a hint.
//   - [Ledger]: this instance's own grants of the last window, key by key, kept
//     at all times. When Redis is out of reach, decisions are made from it.
//
// Both know keys by a hash only ([Hasher]) and take the time as an argument, in
// nanoseconds on a clock that does not go backwards.
package local
