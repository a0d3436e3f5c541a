// Package conformance checks that a backend decides exactly as the reference models do: the Redis scripts, or
// another backend or encoding that takes their place.
//
// [Test] drives the backend through thousands of random histories in virtual time (costs, counts, idle gaps, every
// operation, charges of the past, limits and algorithms that change, clock steps in both directions, batches of
// mixed keys, groups). It compares every field of every decision with a plain-Go model of the algorithm. It also
// checks on the backend itself that waits are exact: the cost is granted at the end of each wait, and is not
// granted one microsecond earlier.
package conformance
