package tiered

import (
	"fmt"

	"github.com/tierlimit/tierlimit/limit"
)

// PrepareRule makes a rule as [Limiter.ChangeRule] does, and does not yet put it in
// force: so that several are changed together, or none if one of them cannot be. See
// [Limiter.PutInForce]. Errors are those of [Limiter.Rule].
func (l *Limiter) PrepareRule(name string, lim limit.Limit, options ...RuleOption) (*Rule, error) {
	return l.prepare(name, lim, options)
}

// PutInForce makes each of the rules the one of its name, all at the same moment: what
// [Limiter.Rule] returns from then on. A rule decides whether it is in force or not, so
// what is left to do is to hand out the new ones.
//
// Errors wrap [limit.ErrInvalidRule], where a rule is nil or of another limiter;
// nothing has changed then.
func (l *Limiter) PutInForce(rules ...*Rule) error {
	for _, r := range rules {
		if r == nil || r.limiter != l {
			return fmt.Errorf("%w: a rule to put in force is nil or of another limiter", limit.ErrInvalidRule)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range rules {
		l.rules[r.name] = r
	}
	return nil
}
