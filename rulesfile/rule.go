package rulesfile

import (
	"context"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// Rule is a rule of a file, as it is at any time: each call uses what is then in force.
// Get it from [Rules.Rule]. It is safe for concurrent use.
type Rule struct {
	rules *Rules
	name  string
}

// Name is the rule's name.
func (r *Rule) Name() string { return r.name }

// For returns the rule that a key is now held to: that of its own limit or plan, if the
// file says so, or else the rule itself. Use it for what [Rule.Allow] and [Rule.AllowN]
// do not do: in a tiered.Request, or with httplimit.RuleForKey and grpclimit.RuleForKey. What must agree, such as a
// charge and its refund, is to be asked of the same tiered.Rule.
func (r *Rule) For(key string) *tiered.Rule {
	t := r.terms()
	if rule := t.keys[key]; rule != nil {
		return rule
	}
	return t.rule
}

// Plan returns the rule that keys on a plan are now held to, for programs that know
// who is on which plan by themselves. Without such a plan it is the rule itself.
func (r *Rule) Plan(name string) *tiered.Rule {
	t := r.terms()
	if rule := t.plans[name]; rule != nil {
		return rule
	}
	return t.rule
}

// terms are never nil: a file without a rule that is used is refused.
func (r *Rule) terms() *terms { return (*r.rules.inForce.Load())[r.name] }

// Allow decides whether a request of cost 1 may proceed, see [tiered.Rule.AllowN].
func (r *Rule) Allow(ctx context.Context, key string) (limit.Decision, error) {
	return r.For(key).AllowN(ctx, key, 1)
}

// AllowN decides whether a request of the given cost may proceed, see
// [tiered.Rule.AllowN].
func (r *Rule) AllowN(ctx context.Context, key string, cost int64) (limit.Decision, error) {
	return r.For(key).AllowN(ctx, key, cost)
}
