package rulesfile

import (
	"maps"
	"slices"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// prepare makes a rule, and its copies with the limits of plans and keys. It adds the settings that the
// limiter refuses to the problems. The error matches [limit.ErrClosed] if the limiter is closed.
func (r *Rules) prepare(s *spec, f *file, p *problems) (*terms, error) {
	options := make([]tiered.RuleOption, len(s.options))
	for i, o := range s.options {
		options[i] = o.value
	}
	rule, err := r.limiter.PrepareRule(s.name, s.limit.value, options...)
	if err != nil {
		p.add(r.culprit(s), err)
		return nil, err
	}
	t := &terms{rule: rule, plans: make(map[string]*tiered.Rule), keys: make(map[string]*tiered.Rule)}
	for _, name := range slices.Sorted(maps.Keys(s.plans)) {
		t.plans[name] = withLimit(rule, s.plans[name], p)
	}
	for key, plan := range f.keys {
		if rule := t.plans[plan.value]; rule != nil {
			t.keys[key] = rule
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.keys)) {
		if k := s.keys[key]; k.plan.value != "" {
			t.keys[key] = t.plans[k.plan.value]
		} else {
			t.keys[key] = withLimit(rule, k.limit, p)
		}
	}
	return t, nil
}

func withLimit(rule *tiered.Rule, l placed[limit.Limit], p *problems) *tiered.Rule {
	if !sameCalls(rule.Limit(), l.value) {
		p.addf(l.at, "%v cannot be the limit of a plan or key of rule %q, whose limit is %v: "+notTheSameCalls, l.value, rule.Name(), rule.Limit())
		return nil
	}
	other, err := rule.WithLimit(l.value)
	if err != nil {
		p.add(l.at, err)
	}
	return other
}

// sameCalls reports whether a program makes the same calls under both limits. Every call of the kind for the other
// limit would be an error.
func sameCalls(a, b limit.Limit) bool { return a.IsConcurrent() == b.IsConcurrent() }

const notTheSameCalls = "units of a concurrency limit are given back, those of other limits are used up; make two rules of them"

// culprit returns the place of the setting that the limiter refuses in a rule, or the place of the rule
// if it refuses only a combination.
func (r *Rules) culprit(s *spec) place {
	plain := limit.PerMinute(1)
	if s.limit.value.IsConcurrent() {
		plain = limit.Concurrent(1) // a limit with a window refuses slot_ttl, which is no mistake here
	}
	if _, err := r.limiter.PrepareRule(s.name, plain); err != nil {
		return s.at // the name
	}
	for _, o := range s.options {
		if _, err := r.limiter.PrepareRule(s.name, plain, o.value); err != nil {
			return o.at
		}
	}
	return s.at
}
