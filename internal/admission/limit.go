package admission

import (
	"slices"

	"github.com/tierlimit/tierlimit/internal/inspect"
	"github.com/tierlimit/tierlimit/internal/keys"
	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/tiered"
)

// Limit is one of the limits that calls are held to. C is the type of a call as its functions get it, and
// R is the type of the call's result.
type Limit[C, R any] struct {
	Rule *tiered.Rule
	Key  func(C) string
	When func(C) bool  // nil: always
	Cost func(C) int64 // nil: 1
	// Settle returns what a call used in the end; nil: what it was charged. With ByHandler, the call's
	// handler reports it with [SetCost].
	Settle    func(C, R) int64
	ByHandler bool
	ruleFor   func(call C, key string) *tiered.Rule
}

// RuleFor sets the function that chooses the rule for a call. choose gets the call's key as Key returned
// it. If choose is not set or returns nil, Rule applies. name is the option's name in errors. given says
// that the option was not given nil. Only one function may choose.
func (l *Limit[C, R]) RuleFor(name string, given bool, choose func(call C, key string) *tiered.Rule) error {
	if !given {
		return option.Invalid("%s was given nil", name)
	}
	if l.ruleFor != nil {
		return option.Invalid("%s was given, but another option already chooses the rule: give only one RuleFor or RuleForKey", name)
	}
	l.ruleFor = choose
	return nil
}

// Request returns what to charge for a call, and whether the limit applies to the call at all.
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

// CheckSettling returns an error if the settings for correcting charges are invalid.
func (l *Limit[C, R]) CheckSettling() error {
	switch name := l.Rule.Name(); {
	case l.Settle != nil && l.ByHandler:
		return option.Invalid("limit %q has both Settle and HandlerCost: give only one of them", name)
	case l.Settles() && l.Rule.Limit().IsConcurrent():
		return option.Invalid("limit %q has Settle or HandlerCost, but is a concurrency limit, whose units are given back when the handler returns", name)
	}
	return nil
}

// Used returns what a call used in the end, if that is known. said has what the call's handler reported.
func (l *Limit[C, R]) Used(call C, result R, said *ReportedCost) (units int64, known bool) {
	switch {
	case l.Settle != nil:
		return l.Settle(call, result), true
	case l.ByHandler:
		return said.Units()
	}
	return 0, false
}

// Names are the names of the rules of limits that are decided together. Each limit has a rule of its own.
type Names []string

// Add adds the name of the rule of one more limit. It returns an error if the limit is invalid.
func (n *Names) Add(limiter *tiered.Limiter, rule *tiered.Rule, hasKey bool) error {
	switch {
	case rule == nil:
		return option.Invalid("the rule of limit %d is nil", len(*n)+1)
	case !hasKey:
		return option.Invalid("the key of limit %q, or a part of that key, is nil: functions that make keys, like Join and Principal, return nil if an argument is nil, missing, or not a valid name", rule.Name())
	case !inspect.Of(limiter).Owns(rule):
		return option.Invalid("the rule of limit %q belongs to another limiter", rule.Name())
	case slices.Contains(*n, rule.Name()):
		return option.Invalid("two limits use rule %q: make a rule for each", rule.Name())
	}
	*n = append(*n, rule.Name())
	return nil
}
