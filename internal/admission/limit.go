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
	When    func(C) bool         // nil: always
	RuleFor func(C) *tiered.Rule // nil, or nil returned: Rule
	Cost    func(C) int64        // nil: 1
}

// Request returns what to charge for a call, and whether the limit is for it at all.
func (l *Limit[C]) Request(call C) (q tiered.Request, applies bool) {
	if l.When != nil && !l.When(call) {
		return q, false
	}
	q = tiered.Request{Rule: l.Rule, Key: keys.OrNone(l.Key(call)), Cost: 1}
	if l.RuleFor != nil {
		if rule := l.RuleFor(call); rule != nil {
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
