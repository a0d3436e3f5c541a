package admission

import (
	"slices"

	"github.com/tierlimit/tierlimit/internal/inspect"
	"github.com/tierlimit/tierlimit/internal/keys"
	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/tiered"
)

// Limit is one of the limits that calls are held to. C is what its functions are told of a call, and
// R what of its result.
type Limit[C, R any] struct {
	Rule *tiered.Rule
	Key  func(C) string
	When func(C) bool  // nil: always
	Cost func(C) int64 // nil: 1
	// Settle returns what a call used in the end; nil: what it was charged. With ByHandler the call's
	// handler says it, by [SetCost].
	Settle    func(C, R) int64
	ByHandler bool
	ruleFor   func(call C, key string) *tiered.Rule
}

// RuleFor sets what chooses the rule for a call, whose key it is told as Key gave it. Nothing, or
// nil returned, stands for Rule. name is the option's in errors, which given says was not given nil:
// only one may choose.
func (l *Limit[C, R]) RuleFor(name string, given bool, choose func(call C, key string) *tiered.Rule) error {
	if err := option.NotNil(given, name); err != nil {
		return err
	}
	if l.ruleFor != nil {
		return option.Invalid("%s, but the rule is chosen already: give one RuleFor or RuleForKey", name)
	}
	l.ruleFor = choose
	return nil
}

// Request returns what to charge for a call, and whether the limit is for it at all.
func (l *Limit[C, R]) Request(call C) (q tiered.Request, applies bool) {
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

// Settles reports whether the charge of a call is corrected when the call is over.
func (l *Limit[C, R]) Settles() bool { return l.Settle != nil || l.ByHandler }

// CheckSettling returns what is wrong with how charges are corrected.
func (l *Limit[C, R]) CheckSettling() error {
	switch name := l.Rule.Name(); {
	case l.Settle != nil && l.ByHandler:
		return option.Invalid("limit %q has both Settle and HandlerCost, state one of them", name)
	case l.Settles() && l.Rule.Limit().IsConcurrent():
		return option.Invalid("limit %q has Settle or HandlerCost, but its units are given back when the handler returns", name)
	}
	return nil
}

// Used returns what a call used in the end, if that is known. said is what its handler said.
func (l *Limit[C, R]) Used(call C, result R, said *SaidCost) (units int64, known bool) {
	switch {
	case l.Settle != nil:
		return l.Settle(call, result), true
	case l.ByHandler:
		return said.Units()
	}
	return 0, false
}

// Names are those of the rules of limits that are decided about together: each has a rule of its
// own.
type Names []string

// Add adds the name of the rule of one more limit of a limiter's. The error says what is wrong with the
// limit.
func (n *Names) Add(limiter *tiered.Limiter, rule *tiered.Rule, hasKey bool) error {
	switch {
	case rule == nil:
		return option.Invalid("limit %d has a rule that is nil", len(*n)+1)
	case !hasKey:
		return option.Invalid("limit %q has a key, or a part of one, that is nil", rule.Name())
	case !inspect.Of(limiter).Owns(rule):
		return option.Invalid("limit %q has a rule of another limiter", rule.Name())
	case slices.Contains(*n, rule.Name()):
		return option.Invalid("two limits with rule %q: make a rule for each", rule.Name())
	}
	*n = append(*n, rule.Name())
	return nil
}
