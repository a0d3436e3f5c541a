// Package ledger records an instance's own grants, and decides what the instance may grant by itself when
// Redis cannot be reached. A [Ledger] has
//
//   - records of the grants of about the last window, for each key and at all times
//     (record.go, ledger.go); units of one key that are granted without a lock (credit.go);
//     and arrears, for records that were evicted (overflow.go);
//   - this instance's share of each limit (share.go);
//   - a journal of the units that Redis must be charged for afterwards (journal.go), divided
//     by the part of Redis that has their keys (groups.go); and which of these units were
//     lost (losses.go).
//
// The package identifies keys only by a hash, and takes the time as an argument, in nanoseconds on a
// clock that does not go backwards.
package ledger
