package tiered

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
)

// PrepareRule makes a rule as [Limiter.ChangeRule] does, but does not put it in force yet, so that
// several rules can be changed together, or none if one of them is invalid. See
// [Limiter.PutInForce]. Errors are those of [Limiter.Rule].
func (l *Limiter) PrepareRule(name string, lim limit.Limit, options ...RuleOption) (*Rule, error) {
	if err := remote.CheckRuleName(name); err != nil {
		return nil, err
	}
	c := ruleConfig{denialLife: denialLife}
	if err := option.Apply(&c, options); err != nil {
		return nil, fmt.Errorf("rule %q: %w", name, err)
	}
	return l.newRule(name, lim, c)
}

// PutInForce puts the rules in force under their names, all at the same moment: [Limiter.Rule] returns
// them from then on. A rule that is no longer in force still decides by its own limit, so the program
// must then use the new rules. Refunds and settlements of units that it has charged are made under the
// new one.
//
// Errors wrap [limit.ErrInvalidRule] if a rule is nil or belongs to another limiter, if two different rules
// have the same name, or if only one of a rule and the one in force has a limit of [limit.Concurrent]. In that case
// nothing has changed.
func (l *Limiter) PutInForce(rules ...*Rule) error {
	if err := l.checkOwn(rules); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range rules {
		if known := l.rules[r.name]; known != nil && !sameKind(known.limit, r.limit) {
			return fmt.Errorf("%w: %q has the limit %v, so it cannot be changed to %v: "+otherKind, limit.ErrInvalidRule, r.name, known.limit, r.limit)
		}
	}
	for _, r := range rules {
		r.sources = nil // the program's own, also if a source had put it in force
		l.replace(l.rules[r.name], r)
	}
	return nil
}

// replace puts a rule in force in place of the known one of its name, which is nil if there is none. A source may change
// the kind of its rules; the rule then does not take over the units of the known one. The limiter's mu must be held.
func (l *Limiter) replace(known, r *Rule) {
	if known != nil && !sameKind(known.limit, r.limit) {
		known = nil
	}
	r.takeOver(known)
	l.rules[r.name] = r
}

// TakeOver tells the limiter that the program uses this rule from now on where it has used another one of the
// same name, such as a copy by [Rule.WithLimit] for a tenant whose limit has changed. The units that the
// other rule has charged count under this one in any case. Now they are also refunded and settled under it,
// and so is what is left of the other rule's leases: see "Changing a rule" in docs/algorithms.md. For rules
// that are not copies, [Limiter.ChangeRule], [Limiter.PutInForce] and [Limiter.PutInForceFrom] do this.
//
// The error wraps [limit.ErrInvalidRule] if the other rule is nil, or is of another name or limiter, or if
// only one of the two has a limit of [limit.Concurrent].
func (r *Rule) TakeOver(other *Rule) error {
	switch {
	case !r.limiter.owns(other):
		return fmt.Errorf("%w: rule %q cannot take over from a rule that is nil, or that belongs to another limiter", limit.ErrInvalidRule, r.name)
	case other.name != r.name:
		return fmt.Errorf("%w: rule %q cannot take over from rule %q: their names must be the same", limit.ErrInvalidRule, r.name, other.name)
	case !sameKind(other.limit, r.limit):
		return fmt.Errorf("%w: rule %q has the limit %v, and cannot take over from one with the limit %v: "+otherKind, limit.ErrInvalidRule, r.name, r.limit, other.limit)
	}
	r.limiter.mu.Lock()
	defer r.limiter.mu.Unlock()
	r.takeOver(other)
	return nil
}

// takeOver is TakeOver for a rule of the same kind, or nil. The limiter's mu must be held.
func (r *Rule) takeOver(other *Rule) {
	switch {
	case r.limit.IsConcurrent(): // units are given back to the process's own record, whatever the rule
	case other == nil:
		r.inOutage.TakeOver(nil)
	default:
		r.inOutage.TakeOver(other.inOutage)
	}
}

// PutInForceFrom is [Limiter.PutInForce] for rules of a named source, such as a file's path, beside the
// program's own rules. It replaces only rules that this source alone has put in force. Any other rule in
// force under one of the names must have the same settings, and stays: a rule that was put in force in
// another way or also by another source, or that [Limiter.Rule] has returned to the program.
// A rule that the source has put in force before and now leaves out is no longer in force, unless another
// source has it or the program uses it.
//
// Errors are those of PutInForce, and a [*ConflictError], which names both rules. But a source may change its own
// rules, of which the program has none, to or from a limit of [limit.Concurrent]. After an error, nothing has changed.
func (l *Limiter) PutInForceFrom(source string, rules ...*Rule) error {
	if err := l.checkOwn(rules); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	stays := func(known *Rule) bool {
		return known != nil && (known.held || !slices.Equal(known.sources, []string{source}))
	}
	for _, r := range rules {
		if known := l.rules[r.name]; stays(known) && !known.equal(r) {
			return known.conflict(r, source)
		}
	}
	for name, known := range l.rules {
		if slices.Contains(known.sources, source) && !slices.ContainsFunc(rules, func(r *Rule) bool { return r.name == name }) {
			known.sources = slices.DeleteFunc(known.sources, func(s string) bool { return s == source })
			if len(known.sources) == 0 && !known.held {
				delete(l.rules, name)
			}
		}
	}
	for _, r := range rules {
		switch known := l.rules[r.name]; {
		case !stays(known):
			r.sources = []string{source}
			l.replace(known, r)
		case len(known.sources) > 0 && !slices.Contains(known.sources, source):
			known.sources = append(known.sources, source)
		}
	}
	return nil
}

// checkOwn checks the rules of one call. Of two rules of a name only one could be in force, and the caller would not
// know which.
func (l *Limiter) checkOwn(rules []*Rule) error {
	byName := make(map[string]*Rule, len(rules))
	for _, r := range rules {
		if !l.owns(r) {
			return fmt.Errorf("%w: a rule to put in force is nil, or belongs to another limiter", limit.ErrInvalidRule)
		}
		if other := byName[r.name]; other != nil && other != r {
			return fmt.Errorf("%w: two rules named %q cannot be put in force together: %s and %s", limit.ErrInvalidRule, r.name, other.settings(), r.settings())
		}
		byName[r.name] = r
	}
	return nil
}

// equal reports whether two rules of a name have the same settings. A setting that spells out its default
// value equals one that is left out.
func (r *Rule) equal(o *Rule) bool {
	a, b := r.config, o.config
	a.unsettledSet, b.unsettledSet = false, false
	a.slotTTL, b.slotTTL = r.slotTTL, o.slotTTL
	return sameLimit(r.limit, o.limit) && a == b
}

// sameKind reports whether a program makes the same calls under both limits. A rule keeps its kind: otherwise every
// call that the program makes already would be an error.
func sameKind(a, b limit.Limit) bool { return a.IsConcurrent() == b.IsConcurrent() }

const otherKind = "units of a concurrency limit are given back, those of other limits are used up; make two rules of them"

// sameLimit reports whether two limits are the same. It accepts time zones that were loaded separately,
// which makes two locations. Zones of the same name count as the same only if they agree on the present
// window, because a zone made by [time.FixedZone] may have any name.
func sameLimit(a, b limit.Limit) bool {
	if a == b {
		return true
	}
	if !a.IsCalendar() || !b.IsCalendar() || a.String() != b.String() {
		return false
	}
	now := time.Now()
	start, end := a.Calendar(now)
	otherStart, otherEnd := b.Calendar(now)
	return start.Equal(otherStart) && end.Equal(otherEnd)
}

// ConflictError reports that a rule cannot be made because another rule of its name, with other
// settings, is in force. It wraps [limit.ErrInvalidRule].
type ConflictError struct {
	Refused, InForce *Rule
	by               string // the program or a source that put InForce in force
}

// conflict returns the error for a rule of a source that is refused because r is in force. The limiter's
// mu must be held.
func (r *Rule) conflict(refused *Rule, source string) error {
	by := "the program"
	if others := slices.DeleteFunc(slices.Clone(r.sources), func(s string) bool { return s == source }); !r.held && len(others) > 0 {
		by = others[0]
	}
	return &ConflictError{Refused: refused, InForce: r, by: by}
}

// Error names both rules.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("%v: %q cannot be defined as %s, because %s has already defined it as %s",
		limit.ErrInvalidRule, e.Refused.name, e.Refused.settings(), e.by, e.InForce.settings())
}

// Unwrap returns [limit.ErrInvalidRule].
func (e *ConflictError) Unwrap() error { return limit.ErrInvalidRule }

// settings describes a rule's limit, and all settings that are not the defaults, so that two rules that conflict do
// not read the same. (Only two needs may, by which the same algorithm was chosen.)
func (r *Rule) settings() string {
	c := r.config
	algorithm := r.algorithm.String()
	switch {
	case c.need.Stated():
		algorithm += " by need"
	case c.algorithm.IsAutomatic() && !r.limit.IsConcurrent():
		algorithm += " by default"
	}
	settings := []string{algorithm, fmt.Sprintf("outage %v", c.policy)}
	add := func(set bool, format string, args ...any) {
		if set {
			settings = append(settings, fmt.Sprintf(format, args...))
		}
	}
	add(c.dryRun, "dry run")
	add(c.leased != 0 && !c.leasedWithin, "lease %d %%", c.leased)
	add(c.leased != 0 && c.leasedWithin, "lease within limit %d %%", c.leased)
	add(c.denialLife != denialLife, "denials remembered for %v", c.denialLife)
	add(c.unsettled != Keep, "unsettled %v", c.unsettled)
	add(c.holdLife != 0, "hold %v", c.holdLife)
	add(r.slotTTL != 0 && r.slotTTL != defaultSlotTTL, "slot TTL %v", r.slotTTL)
	add(c.shadow != 0, "shadow %v", c.shadow)
	add(c.countDenied, "counts denied requests")
	return fmt.Sprintf("%v (%s)", r.given, strings.Join(settings, ", "))
}
