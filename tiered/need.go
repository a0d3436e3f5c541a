package tiered

import (
	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/plan"
)

// Need states requirements instead of an algorithm: how far the limit may be exceeded, how late
// capacity may return, how much memory a key may take. The rule uses the cheapest algorithm that
// meets them, see [plan.Choose]; [Rule.Plan] has the reason. If that is GCRA with a burst, the
// burst becomes a part of the rule's limit. It cannot be combined with [Use]. Keys with their own
// limit ([Rule.WithLimit]) have the same need, for which another algorithm may be chosen.
//
// [Limiter.Rule] returns an error that wraps [plan.ErrUnmet] if nothing meets the need, or
// [plan.ErrInvalidNeed]. A need of few wrong decisions on given traffic is simulated in that call,
// which takes about a microsecond for each request and candidate.
func Need(n plan.Need) RuleOption {
	return func(c *ruleConfig) error {
		c.need = n
		return n.Validate()
	}
}

// Plan describes how the rule counts, how much memory a key takes in Redis, how much can pass in
// the worst case, and why the rule has this algorithm. Memory is for user keys of 16 bytes, unless
// the rule's need sets the length of names.
func (r *Rule) Plan() plan.Plan {
	c := plan.Candidate{Limit: r.limit, Algorithm: r.algorithm}
	return plan.Describe(c, r.limiter.nameBytes(r.name, r.config.need), r.why)
}

// nameBytes returns the length of names in Redis to assume.
func (l *Limiter) nameBytes(rule string, n plan.Need) int {
	if n.NameBytes > 0 {
		return n.NameBytes
	}
	return len(l.keys.Key(rule, "0123456789abcdef"))
}

// plan determines how a rule counts: the limit, with its burst, the algorithm, and the reason for
// it.
func (l *Limiter) plan(rule string, lim limit.Limit, c ruleConfig) (limit.Limit, limit.Algorithm, string, error) {
	switch {
	case c.need.Stated() && !c.algorithm.IsAutomatic():
		return lim, c.algorithm, "", option.Invalid("both a need and the algorithm %v, state one of them", c.algorithm)
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
