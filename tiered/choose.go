package tiered

import (
	"fmt"

	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/plan"
)

// Need states what is needed of the rule instead of how to count: how far above the
// limit it may go, how late capacity may return, how much memory a key may take. The
// rule takes the cheapest algorithm that meets it, see [plan.Choose], and says why in
// [Rule.Plan]. If that is GCRA with a burst, the burst becomes a part of the rule's
// limit. Need cannot be combined with [Use]. For keys with a limit of their own
// ([Rule.WithLimit]) the need is the same, but the choice may differ.
//
// [Limiter.Rule] returns an error that wraps [plan.ErrUnmet] if nothing meets the
// need, or [plan.ErrInvalidNeed]. A need of few wrong decisions on given traffic is
// simulated there, which takes about a microsecond for each request and candidate.
func Need(n plan.Need) RuleOption {
	return func(c *ruleConfig) error {
		c.need = n
		return n.Validate()
	}
}

// Plan tells how the rule counts, what a key takes in Redis's memory, what can pass in
// the worst case, and why the rule has this algorithm. Bytes are for user keys of 16
// bytes, unless the rule's need said how long names are.
func (r *Rule) Plan() plan.Plan {
	c := plan.Candidate{Limit: r.limit, Algorithm: r.algorithm}
	return plan.Describe(c, r.limiter.nameBytes(r.name, r.config.need), r.why)
}

// nameBytes is the length of names in Redis to calculate with.
func (l *Limiter) nameBytes(rule string, n plan.Need) int {
	if n.NameBytes > 0 {
		return n.NameBytes
	}
	return len(l.keys.Key(rule, "0123456789abcdef"))
}

// plan resolves how a rule counts: the limit, with the burst it then has, the
// algorithm, and why.
func (l *Limiter) plan(rule string, lim limit.Limit, c ruleConfig) (limit.Limit, limit.Algorithm, string, error) {
	switch {
	case c.need.Stated() && !c.algorithm.IsAutomatic():
		return lim, c.algorithm, "", option.Invalid("the rule has both a Need and the algorithm %v; set one of them", c.algorithm)
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
