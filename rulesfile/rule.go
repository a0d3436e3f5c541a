package rulesfile

import (
	"context"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// Rule is a rule of a file. Each call uses the settings that are in force at that time. Get it from
// [Rules.Rule]. It is safe for concurrent use.
type Rule struct {
	rules *Rules
	name  string
}

// Name returns the rule's name.
func (r *Rule) Name() string { return r.name }

// For returns the rule that now applies to a key: that of its own limit or plan, if the file has
// one, or else the rule itself. Use it where [Rule.Allow] and [Rule.AllowN] are not enough: in a
// tiered.Request, or with httplimit.RuleForKey and grpclimit.RuleForKey. Use the same tiered.Rule
// for calls that belong together, such as a charge and its refund.
func (r *Rule) For(key string) *tiered.Rule {
	t := r.terms()
	if rule := t.keys[key]; rule != nil {
		return rule
	}
	return t.rule
}

// Plan returns the rule that now applies to keys on a plan, for programs that know by themselves
// which key has which plan. If the file has no such plan, it returns the rule itself.
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
