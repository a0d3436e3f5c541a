// Package local is the in-process tier. It remembers three kinds of answers from Redis:
//
//   - [Denials]: keys that Redis denied, and until when. Requests that are clearly over
//     the limit are denied again without a trip. Denials are bounded, lossy, and only
//     ever a hint.
//   - [Leases]: units that Redis charged in advance, and that this process spends.
//   - [Slots]: units of concurrency limits that this process holds.
//
// The package ledger below it records this instance's own grants. Decisions are based on that record when
// Redis cannot be reached.
//
// Denials, leases and the ledger identify keys by a hash ([Hasher]), slots by the key itself. All of them
// take the time as an argument, in nanoseconds on a clock that does not go backwards.
package local
