// Package conformance checks that something decides exactly as the reference models
// do: the Redis scripts, or another backend or encoding that takes their place.
//
// [Test] drives it through thousands of random histories in virtual time
// (costs, counts, idle gaps, every operation, charges of the past, limits and algorithms that change, clock steps
// in both directions, batches of mixed keys, groups) and compares every field of
// every decision with a plain-Go model of the algorithm. It also checks on the backend
// itself that waits are exact: at the end of each the cost is granted, one microsecond
// earlier it is not.
package conformance
