// Package ledger is what an instance knows of its own grants, and what it may grant by itself when
// Redis is out of reach. A [Ledger] is
//
//   - records of what was granted in about the last window, for each key and at all times
//     (record.go, ledger.go); units of one key that are granted without a lock (credit.go); and
//     what becomes of records for which there is no room (overflow.go);
//   - this instance's share of each limit (share.go);
//   - a journal of the units that Redis must be charged for afterwards (journal.go), told apart by
//     what holds their keys in Redis (groups.go); and what of it was lost (losses.go).
//
// It knows keys by a hash only, and takes the time as an argument, in nanoseconds on a clock that
// does not go backwards.
package ledger
