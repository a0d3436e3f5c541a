package plan

import "github.com/tierlimit/tierlimit/limit"

// maxLimits is the largest multiple of its limit that a key can count, see lua/state.lua.
const maxLimits = 4

// MostWithDebt returns the most units that a key can count at once if holds are settled with more units
// than were held, see tiered.Hold.Settle. The excess is charged whether or not it fits, as debt for
// which the next requests wait. The key counts at most four times the limit (under GCRA four times the
// burst, if that is larger), and at most 100,000 units in a log, or 5,000 if it is kept as a sorted set
// ([limit.SlidingLogZSet]). For a limit of [limit.Concurrent], whose units are not held by an estimate,
// MostWithDebt returns the limit.
func (c Candidate) MostWithDebt() int64 {
	quota := c.Limit.Quota()
	switch {
	case c.Algorithm == limit.Concurrency():
		return quota
	case c.Algorithm == limit.SlidingLogZSet():
		return min(maxLogZSet, maxLimits*quota)
	case c.Algorithm.Same(limit.SlidingLog()):
		return min(maxLog, maxLimits*quota)
	case c.Algorithm.Same(limit.GCRA()):
		return maxLimits * max(quota, c.Limit.Burst())
	}
	return maxLimits * quota
}
