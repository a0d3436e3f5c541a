package rulesfile

import (
	"context"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// Rule is a rule of a file. Each call uses the settings that are in force at that moment. Get a Rule
// from [Rules.Rule]. It is safe for concurrent use.
type Rule struct {
	rules *Rules
	name  string
}

// Name returns the rule's name.
func (r *Rule) Name() string { return r.name }

// For returns the tiered.Rule that now applies to a key. If the file has a limit or a plan for the key,
// that is the rule with this limit; otherwise it is the rule itself. Use For where [Rule.Allow] and
// [Rule.AllowN] are not enough: in a tiered.Request, or with httplimit.RuleForKey and
// grpclimit.RuleForKey. Use the same tiered.Rule for calls that belong together, such as a charge and
// its refund.
func (r *Rule) For(key string) *tiered.Rule {
	t := r.terms()
	if rule := t.keys[key]; rule != nil {
		return rule
	}
	return t.rule
}

// Plan returns the tiered.Rule that now applies to the keys on a plan. It is for programs that know by
// themselves which key has which plan. If the file has no such plan, Plan returns the rule itself.
func (r *Rule) Plan(name string) *tiered.Rule {
	t := r.terms()
	if rule := t.plans[name]; rule != nil {
		return rule
	}
	return t.rule
}

// terms are never nil: a file that lacks a rule in use is refused.
func (r *Rule) terms() *terms { return (*r.rules.inForce.Load())[r.name] }

// Allow decides whether a request of cost 1 may proceed, see [tiered.Rule.Allow].
func (r *Rule) Allow(ctx context.Context, key string) (limit.Decision, error) {
	return r.For(key).AllowN(ctx, key, 1)
}

// AllowN decides whether a request of the given cost may proceed, see
// [tiered.Rule.AllowN].
func (r *Rule) AllowN(ctx context.Context, key string, cost int64) (limit.Decision, error) {
	return r.For(key).AllowN(ctx, key, cost)
}
