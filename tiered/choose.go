package tiered

import (
	"fmt"

	"github.com/tierlimit/tierlimit/limit"
)

// The default thresholds of the automatic choice, see [Thresholds].
const (
	DefaultLogUpTo     = 2_000
	DefaultCounterUpTo = 100_000
)

// choose picks the algorithm for a rule that names none, by the size of its limit, and returns the
// reason. A log is exact and takes 5 bytes a unit, which is little for a small limit; a counter's
// relative error is small for a middle one; for a large one, GCRA has the smallest state and the
// fastest decisions. Its burst becomes a part of the limit.
//
// A larger limit must never grant less. A log and a counter grant all of a limit at once, so
// the burst is at least the largest limit that they are chosen for. Beyond, a tenth
// of the limit keeps the worst case close to it.
func (c *config) choose(l limit.Limit) (limit.Limit, limit.Algorithm, string) {
	switch {
	case l.IsCalendar():
		return l, limit.FixedWindow(), "windows of the calendar are fixed windows."
	case l.HasBurst():
		return l, limit.GCRA(), "the limit has a burst, and no other algorithm has one."
	case l.Quota() <= c.logUpTo:
		return l, limit.SlidingLog(), fmt.Sprintf("chosen by the size of the limit, which is up to %d: small enough for a log.", c.logUpTo)
	case l.Quota() <= c.counterUpTo:
		return l, limit.SlidingCounter(limit.DefaultBuckets, limit.Strict), fmt.Sprintf("chosen by the size of the limit, which is above %d and up to %d.", c.logUpTo, c.counterUpTo)
	}
	l = l.WithBurst(max((l.Quota()+9)/10, c.counterUpTo))
	return l, limit.GCRA(), fmt.Sprintf("chosen by the size of the limit, which is above %d; the burst is a tenth of the limit, but at least %d, so that no smaller limit grants more at once.", c.counterUpTo, c.counterUpTo)
}
