// Package ledger records an instance's own grants, and decides what it may grant by itself when
// Redis cannot be reached. A [Ledger] has
//
//   - records of what was granted in about the last window, for each key and at all times
//     (record.go, ledger.go); units of one key that are granted without a lock (credit.go); and
//     what happens to records for which there is no room (overflow.go);
//   - this instance's share of each limit (share.go);
//   - a journal of the units that Redis must be charged for afterwards (journal.go), told apart by
//     what holds their keys in Redis (groups.go); and what of it was lost (losses.go).
//
// It identifies keys only by a hash, and takes the time as an argument, in nanoseconds on a clock
// that does not go backwards.
package ledger
