package admission

import (
	"slices"

	"github.com/tierlimit/tierlimit/internal/keys"
	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/tiered"
)

// Limit is one of the limits that calls are held to. C is what its functions are told of a call.
type Limit[C any] struct {
	Rule    *tiered.Rule
	Key     func(C) string
	When    func(C) bool  // nil: always
	Cost    func(C) int64 // nil: 1
	ruleFor func(call C, key string) *tiered.Rule
}

// RuleFor sets what chooses the rule for a call, whose key it is told as Key gave it. Nothing, or
// nil returned, stands for Rule. name is the option's in errors: only one may choose.
func (l *Limit[C]) RuleFor(name string, choose func(call C, key string) *tiered.Rule) error {
	if l.ruleFor != nil {
		return option.Invalid("%s, but the rule is chosen already: give one RuleFor or RuleForKey", name)
	}
	l.ruleFor = choose
	return nil
}

// Request returns what to charge for a call, and whether the limit is for it at all.
func (l *Limit[C]) Request(call C) (q tiered.Request, applies bool) {
	if l.When != nil && !l.When(call) {
		return q, false
	}
	key := l.Key(call)
	q = tiered.Request{Rule: l.Rule, Key: keys.OrNone(key), Cost: 1}
	if l.ruleFor != nil {
		if rule := l.ruleFor(call, key); rule != nil {
			q.Rule = rule
		}
	}
	if l.Cost != nil {
		q.Cost = l.Cost(call)
	}
	return q, true
}

// Names are those of the rules of limits that are decided about together: each has a rule of its
// own.
type Names []string

// Add adds the name of the rule of one more limit. The error says what is wrong with the limit.
func (n *Names) Add(rule *tiered.Rule, hasKey bool) error {
	if rule == nil || !hasKey {
		return option.Invalid("a limit's rule or key is nil")
	}
	if slices.Contains(*n, rule.Name()) {
		return option.Invalid("two limits with rule %q: make a rule for each", rule.Name())
	}
	*n = append(*n, rule.Name())
	return nil
}
