package tiered

import "github.com/tierlimit/tierlimit/limit"

// The default thresholds of the automatic choice, see [Thresholds].
const (
	DefaultLogUpTo     = 2_000
	DefaultCounterUpTo = 100_000
)

// choose picks the algorithm for a rule that names none, by the size of its
// limit: a log is exact and takes 5 bytes a unit, which is nothing for a small
// limit; a counter's error shrinks against a middle one; for a large one, GCRA's
// burst is a small part of it and its state the smallest.
func (c *config) choose(l limit.Limit) limit.Algorithm {
	switch {
	case l.IsCalendar():
		return limit.FixedWindow()
	case l.Quota() <= c.logUpTo:
		return limit.SlidingLog()
	case l.Quota() <= c.counterUpTo:
		return limit.SlidingCounter(limit.DefaultBuckets, limit.Strict)
	}
	return limit.GCRA()
}
