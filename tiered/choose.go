package tiered

import (
	"fmt"

	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/plan"
)

// Need states what the rule must achieve instead of how to count: how far it may exceed the limit, how
// late capacity may return, how much memory a key may take. The rule takes the cheapest algorithm that
// meets the need (see [plan.Choose]), and gives the reason in [Rule.Plan]. If the algorithm is GCRA with
// a burst, the burst becomes a part of the rule's limit. Need cannot be combined with [Use]. Keys with a
// limit of their own ([Rule.WithLimit]) have the same need, but the choice may differ.
//
// [Limiter.Rule] returns an error that wraps [plan.ErrUnmet] if no algorithm meets the need, or
// [plan.ErrInvalidNeed]. If the need is few wrong decisions on given traffic, Limiter.Rule simulates the
// traffic, which takes about a microsecond for each request and candidate.
func Need(n plan.Need) RuleOption {
	return func(c *ruleConfig) error {
		c.need = n
		return n.Validate()
	}
}

// Plan describes how the rule counts, how much of Redis's memory a key takes, how much can pass in the
// worst case, and why the rule has this algorithm. Bytes are for user keys of 16 bytes, unless the rule's
// need states the length of names.
func (r *Rule) Plan() plan.Plan {
	c := plan.Candidate{Limit: r.limit, Algorithm: r.algorithm}
	return plan.Describe(c, r.limiter.nameBytes(r.name, r.config.need), r.why)
}

// nameBytes returns the length of names in Redis to calculate with.
func (l *Limiter) nameBytes(rule string, n plan.Need) int {
	if n.NameBytes > 0 {
		return n.NameBytes
	}
	return len(l.keys.Key(rule, "0123456789abcdef"))
}

// plan determines how a rule counts. It returns the limit with the burst that it then has, the algorithm,
// and the reason.
func (l *Limiter) plan(rule string, lim limit.Limit, c ruleConfig) (limit.Limit, limit.Algorithm, string, error) {
	switch {
	case lim.IsConcurrent():
		return lim, limit.Concurrency(), "the limit is on units that are held at the same time, and has no window.", nil
	case c.need.Stated() && !c.algorithm.IsAutomatic():
		return lim, c.algorithm, "", option.Invalid("the rule has both a Need and the algorithm %v; set only one of them", c.algorithm)
	case c.need.Stated():
		n := c.need
		n.NameBytes = l.nameBytes(rule, n)
		p, err := plan.Choose(lim, n)
		return p.Limit, p.Algorithm, p.Why, err
	case c.algorithm.IsAutomatic():
		lim, a, why := l.config.choose(lim)
		return lim, a, why, nil
	}
	return lim, c.algorithm, "the rule names the algorithm.", nil
}

// The default thresholds of the automatic choice; see [Thresholds].
const (
	DefaultLogUpTo     = 2_000
	DefaultCounterUpTo = 100_000
)

// choose picks the algorithm for a rule that names none, by the size of its limit, and returns the
// reason. A log is exact and takes 5 bytes per unit, which is little for a small limit. A counter's
// relative error is small for a medium limit. For a large limit, GCRA has the smallest state and the
// fastest decisions. The burst of GCRA becomes a part of the limit.
//
// A larger limit must never grant less. A log and a counter grant the whole limit at once, so the burst
// is at least the largest limit for which a log or a counter is chosen. For still larger limits, a burst
// of a tenth of the limit keeps the worst case close to the limit.
func (c *config) choose(l limit.Limit) (limit.Limit, limit.Algorithm, string) {
	switch {
	case l.IsCalendar():
		return l, limit.FixedWindow(), "calendar windows are fixed windows."
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
