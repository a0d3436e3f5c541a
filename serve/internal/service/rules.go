package service

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/serve/internal/config"
	"github.com/tierlimit/tierlimit/serve/internal/stats"
	"github.com/tierlimit/tierlimit/tiered"
)

// Limiters hold the limits. PerSecond, if not nil, holds the limits per second.
type Limiters struct {
	All, PerSecond *tiered.Limiter
}

func (l *Limiters) of(window time.Duration) *tiered.Limiter {
	if l.PerSecond != nil && window == time.Second {
		return l.PerSecond
	}
	return l.All
}

// rule makes the rule for a limit. The rule's name is the window, because counts belong to a rule's name and a key.
// Limits with the same descriptor and window share a count, as an override and the configured limit do, and limits
// with different windows do not. Windows that only requests have are an exception, see loaded.ruleName.
func (l *Limiters) rule(name string, quota int64, window time.Duration, terms *config.Terms, remember bool) (*tiered.Rule, error) {
	options := []tiered.RuleOption{tiered.OnOutage(terms.Outage)}
	switch {
	case !terms.Counted:
		options = append(options, tiered.Use(limit.FixedWindow()), tiered.CountDenied())
		if !remember {
			options = append(options, tiered.DenialLife(0))
		}
		quota = max(1, quota) // the caller decides a limit of 0 by the count
	case quota == 0:
		return nil, nil
	case terms.Need.Stated():
		options = append(options, tiered.Need(terms.Need))
	default:
		options = append(options, tiered.Use(terms.Algorithm))
	}
	if terms.Lease > 0 {
		options = append(options, tiered.Lease(terms.Lease))
	}
	return l.of(window).PrepareRule(name, limit.Per(quota, window).WithBurst(terms.Burst), options...)
}

// loaded is the configuration in force.
type loaded struct {
	config  *config.Config
	counts  map[*config.Limit]*stats.Limit
	windows map[time.Duration]bool // of the configuration's limits

	overrides sync.Map // of *tiered.Rule, by override
	known     atomic.Int64
}

// otherWindows is the name that the rules of all windows share that only requests have.
const otherWindows = "other"

// ruleName returns the name of the rule for a window. A limiter keeps counts by name for as long as it lives, so
// requests must not be able to create names. Windows of several units that no configured limit has share one name,
// and their keys tell them apart.
func (l *loaded) ruleName(window time.Duration) string {
	if l.windows[window] || config.IsUnit(window) {
		return window.String()
	}
	return otherWindows
}

// override is a limit that a request carries.
type override struct {
	quota  int64
	window time.Duration
	terms  *config.Terms
}

// maxOverrides is how many rules are kept for limits that requests carry.
const maxOverrides = 10_000

// stated has the parts of a configured limit that determine its rule.
type stated struct {
	quota  int64
	window time.Duration
	terms  config.Terms
}

// load prepares all rules of a configuration. Limits with the same terms share a rule: with many thousands of limits,
// one rule each would take most of the memory.
func (s *Service) load(c *config.Config) (*loaded, error) {
	l := &loaded{config: c, counts: make(map[*config.Limit]*stats.Limit), windows: make(map[time.Duration]bool)}
	rules := make(map[stated]*tiered.Rule)
	var problems []error
	for _, lim := range c.Limits() {
		if lim.Unlimited {
			continue
		}
		l.windows[lim.Window] = true
		says := stated{lim.RequestsPerUnit(), lim.Window, lim.Terms}
		rule, known := rules[says]
		if !known {
			var err error
			if rule, err = s.limiters.rule(lim.Window.String(), says.quota, says.window, &says.terms, s.options.RememberDenials); err != nil {
				problems = append(problems, lim.Problem(err))
				continue
			}
			rules[says] = rule
		}
		lim.Rule = rule
	}
	if problems != nil {
		return nil, errors.Join(problems...)
	}
	last := make(map[time.Duration]*tiered.Rule)
	for _, lim := range c.Limits() {
		l.counts[lim] = s.stats.Limit(lim.StatName)
		if lim.Rule != nil {
			last[lim.Window] = lim.Rule
		}
	}
	// Pages show these rules. Of several limits with one window, all of which are used, they show the last. The others are
	// never in force: hits that they have counted would otherwise be given back under the last. Windows that the
	// configuration no longer has are no longer shown.
	inForce := map[*tiered.Limiter][]*tiered.Rule{s.limiters.All: nil}
	if s.limiters.PerSecond != nil {
		inForce[s.limiters.PerSecond] = nil
	}
	for window, rule := range last {
		limiter := s.limiters.of(window)
		inForce[limiter] = append(inForce[limiter], rule)
	}
	for limiter, rules := range inForce {
		if err := limiter.PutInForceFrom("the configuration", rules...); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// overrideRule returns the rule for a limit that a request carries.
func (s *Service) overrideRule(l *loaded, o override) (*tiered.Rule, error) {
	if rule, ok := l.overrides.Load(o); ok {
		return rule.(*tiered.Rule), nil
	}
	try := []*config.Terms{o.terms}
	if o.terms.Counted { // terms that fit the configured limit need not fit this one
		withoutBurst := *o.terms
		withoutBurst.Burst = 0
		try = append(try, &withoutBurst, &config.Terms{Counted: true, Outage: o.terms.Outage})
	}
	var rule *tiered.Rule
	var err error
	for _, terms := range try {
		if rule, err = s.limiters.rule(l.ruleName(o.window), o.quota, o.window, terms, s.options.RememberDenials); err == nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("a descriptor's own limit: %w", err)
	}
	if l.known.Add(1) > maxOverrides {
		l.known.Add(-1)
		return rule, nil
	}
	if first, known := l.overrides.LoadOrStore(o, rule); known {
		l.known.Add(-1) // several requests brought the same override at the same time
		return first.(*tiered.Rule), nil
	}
	return rule, nil
}
