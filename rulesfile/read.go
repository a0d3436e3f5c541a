package rulesfile

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/plan"
	"github.com/tierlimit/tierlimit/tiered"
)

// file is the content of a rules file, as far as it can be checked without a limiter.
type file struct {
	at    place // of the field rules
	rules []*spec
	keys  map[string]placed[string] // the plan of a key, in all rules that have a plan of that name
}

// place returns the place of a rule.
func (f *file) place(rule string) place {
	for _, s := range f.rules {
		if s.name == rule {
			return s.at
		}
	}
	return f.at
}

// spec is what a file says about one rule.
type spec struct {
	name    string
	at      place
	limit   placed[limit.Limit]
	options []placed[tiered.RuleOption] // the settings other than the limit
	plans   map[string]placed[limit.Limit]
	keys    map[string]keyTerms
}

// placed is a value, and the place where the file says it.
type placed[T any] struct {
	at    place
	value T
}

// keyTerms are what applies to a key: a plan, or a limit of its own.
type keyTerms struct {
	plan  placed[string] // its name is "" if the key has a limit of its own
	limit placed[limit.Limit]
}

// read parses a file's text. Its error is one or more [Problem]s.
func read(name string, text []byte) (*file, error) {
	p := &problems{file: name}
	f := &file{at: place{1, 1}}
	body := parse(text, p)
	if err := p.err(); err != nil {
		return nil, err
	}
	if body == nil {
		p.addf(f.at, "the file is empty, must have rules")
		return nil, p.err()
	}
	f.readTop(body, p)
	f.checkPlans(p)
	return f, p.err()
}

func (f *file) readTop(body ast.Node, p *problems) {
	found := false
	for _, top := range p.fields(body, "the file") {
		switch top.name {
		case "rules":
			found = true
			f.at = top.at
			for _, r := range p.fields(top.value, "rules") {
				f.rules = append(f.rules, readRule(r, p))
			}
			if m, ok := top.value.(*ast.MappingNode); ok && len(m.Values) == 0 {
				p.addf(top.at, "rules contains no rule")
			}
		case "keys":
			f.keys = make(map[string]placed[string])
			for _, k := range p.fields(top.value, "keys") {
				if text, ok := p.text(ofAKey(k), "the name of a plan"); ok {
					f.keys[k.name] = placed[string]{at(k.value), text}
				}
			}
		default:
			p.unknown(top, "rules", "keys")
		}
	}
	if !found && len(p.list) == 0 {
		p.addf(at(body), "the file has no rules")
	}
}

func readRule(r field, p *problems) *spec {
	s := &spec{name: r.name, at: r.at}
	option := func(f field, o tiered.RuleOption) {
		s.options = append(s.options, placed[tiered.RuleOption]{at(f.value), o})
	}
	fields := p.fields(r.value, "rule "+strconv.Quote(r.name))
	for _, f := range fields {
		switch f.name {
		case "limit":
			s.limit = p.limit(f)
		case "concurrent":
			s.limit = p.concurrent(f)
		case "slot_ttl":
			option(f, tiered.SlotTTL(p.duration(f, "a duration like 10s")))
		case "algorithm":
			if text, ok := p.text(f, "an algorithm like sliding-counter:k=60,strict"); ok {
				a, err := limit.ParseAlgorithm(text)
				if err != nil {
					p.add(at(f.value), err)
				}
				option(f, tiered.Use(a))
			}
		case "need":
			option(f, tiered.Need(p.need(f)))
		case "outage":
			option(f, tiered.OnOutage(choice(p, f, "approximate, allow or deny", outagePolicies)))
		case "unsettled":
			option(f, tiered.Unsettled(choice(p, f, "keep or give_back", unsettledPolicies)))
		case "hold":
			option(f, tiered.HoldLife(p.duration(f, "how long a hold lasts, like 90s")))
		case "remember":
			option(f, tiered.DenialLife(p.duration(f, "a duration like 200ms, or 0")))
		case "lease":
			option(f, tiered.Lease(p.percent(f)))
		case "lease_within_limit":
			option(f, tiered.LeaseWithinLimit(p.percent(f)))
		case "dry_run":
			if p.boolean(f) {
				option(f, tiered.DryRun())
			}
		case "shadow":
			option(f, tiered.Shadow(p.number(f, "the part of the keys to compare with the exact log, above 0 and up to 1 (for a rule that never denies say dry_run: true)")))
		case "plans":
			s.plans = p.plans(f, named(fields, "concurrent"))
		case "keys":
			s.keys = make(map[string]keyTerms)
			for _, f := range p.fields(f.value, "keys") {
				s.keys[f.name] = p.terms(f)
			}
		default:
			p.unknown(f, "limit", "concurrent", "slot_ttl", "algorithm", "need", "outage", "hold", "unsettled", "remember", "lease", "lease_within_limit", "dry_run", "shadow", "plans", "keys")
		}
	}
	p.checkChoices(r, fields)
	return s
}

// checkChoices checks a rule's fields of which only one may be set.
func (p *problems) checkChoices(r field, fields []field) {
	if named(fields, "lease") && named(fields, "lease_within_limit") {
		p.addf(r.at, "rule %q has both lease and lease_within_limit, choose one of them", r.name)
	}
	switch windowed, concurrent := named(fields, "limit"), named(fields, "concurrent"); {
	case windowed && concurrent:
		p.addf(r.at, "rule %q has both limit and concurrent, make two rules of them", r.name)
	case !windowed && !concurrent && fields != nil:
		p.addf(r.at, "rule %q has no limit", r.name)
	}
}

// plans reads the limits of a rule's plans. concurrent says that the rule's limit is one on what is in flight.
func (p *problems) plans(plans field, concurrent bool) map[string]placed[limit.Limit] {
	limits := make(map[string]placed[limit.Limit])
	for _, f := range p.fields(plans.value, "plans") {
		if strings.Contains(f.name, "/") {
			p.addf(f.at, "the name of plan %q contains \"/\", which only limits may contain", f.name)
		}
		limits[f.name] = p.planLimit(f, concurrent)
	}
	return limits
}

func named(fields []field, name string) bool {
	return slices.ContainsFunc(fields, func(f field) bool { return f.name == name })
}

var (
	outagePolicies    = map[string]tiered.OutagePolicy{"approximate": tiered.Approximate, "allow": tiered.Allow, "deny": tiered.Deny}
	unsettledPolicies = map[string]tiered.UnsettledPolicy{"keep": tiered.Keep, "give_back": tiered.GiveBack}
)

func (p *problems) unknown(f field, known ...string) {
	p.addf(f.at, "unknown field %q, must be one of %s", f.name, strings.Join(known, ", "))
}

const likeLimit = "a limit like 60/1m, 1000/1h,burst=50 or 5000/month@Europe/Berlin"

func (p *problems) limit(f field) placed[limit.Limit] {
	l := placed[limit.Limit]{at: at(f.value)}
	if text, ok := p.text(f, likeLimit); ok {
		var err error
		if l.value, err = limit.Parse(text); err != nil {
			p.add(l.at, err)
		}
	}
	return l
}

// planLimit reads the limit of a plan. In a rule whose limit is a number of units held at the same time, a plan's
// limit that is a number, too, is a likely mistake, and limit.Parse would propose a limit with a window.
func (p *problems) planLimit(f field, concurrent bool) placed[limit.Limit] {
	if text, _ := plain(f.value); concurrent && text != "" && strings.Trim(text, "0123456789") == "" {
		p.addf(at(f.value), "%w: %q: write the limit of this rule's plans and keys like 10/concurrent", limit.ErrInvalidLimit, text)
		return placed[limit.Limit]{at: at(f.value)}
	}
	return p.limit(f)
}

// concurrent reads a limit of limit.Concurrent.
func (p *problems) concurrent(f field) placed[limit.Limit] {
	n, ok := p.whole(f, "how many units may be held at the same time, like 10")
	l := placed[limit.Limit]{at(f.value), limit.Concurrent(n)}
	if err := l.value.Validate(); ok && err != nil {
		p.add(l.at, err)
	}
	return l
}

// terms reads the value of a key in a rule: a plan's name, or a limit. Only a limit contains a "/".
func (p *problems) terms(f field) keyTerms {
	f = ofAKey(f)
	text, ok := p.text(f, "the name of a plan, or "+likeLimit)
	switch {
	case !ok:
		return keyTerms{}
	case strings.Contains(text, "/"):
		return keyTerms{limit: p.limit(f)}
	}
	return keyTerms{plan: placed[string]{at(f.value), text}}
}

// ofAKey returns a key's field without the key. Problems that name the field are logged, and keys must
// not be logged.
func ofAKey(f field) field {
	f.name = "the value of a key"
	return f
}

// choice reads one of a few words. If it is none of them, the value is the zero value of T.
func choice[T any](p *problems, f field, like string, values map[string]T) T {
	text, _ := plain(f.value)
	value, ok := values[text]
	if !ok {
		p.unlike(f.value, f.name, like)
	}
	return value
}

func (p *problems) boolean(f field) bool {
	b, ok := f.value.(*ast.BoolNode)
	if !ok {
		like := "true or false"
		if text, _ := plain(f.value); text == "true" || text == "false" { // in quotes, which the message leaves out
			like += ", without quotes"
		}
		p.unlike(f.value, f.name, like)
		return false
	}
	return b.Value
}

// parsed reads a value by a function that parses its text.
func parsed[T any](p *problems, f field, like string, parse func(string) (T, error)) (value T, ok bool) {
	text, _ := plain(f.value)
	value, err := parse(text)
	if err != nil {
		p.unlike(f.value, f.name, like)
	}
	return value, err == nil
}

func (p *problems) number(f field, like string) float64 {
	n, _ := parsed(p, f, like, func(text string) (float64, error) { return strconv.ParseFloat(text, 64) })
	return n
}

func (p *problems) whole(f field, like string) (n int64, ok bool) {
	return parsed(p, f, like, func(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) })
}

func (p *problems) percent(f field) int {
	n, _ := parsed(p, f, "a whole percentage of the limit, 1 to 50, like 10", strconv.Atoi)
	return n
}

func (p *problems) duration(f field, like string) time.Duration {
	d, _ := parsed(p, f, like, time.ParseDuration)
	return d
}

// need reads a rule's need, which replaces an algorithm.
func (p *problems) need(n field) plan.Need {
	var need plan.Need
	for _, f := range p.fields(n.value, "need") {
		switch f.name {
		case "above":
			need.Above = plan.AtMost(p.number(f, "a part of the limit, like 0 or 0.1"))
		case "late":
			need.Late = plan.AtMost(p.number(f, "a part of the window, like 0.02"))
		case "bytes":
			need.Bytes, _ = p.whole(f, "a whole number of bytes")
		default:
			p.unknown(f, "above", "late", "bytes")
		}
	}
	return need
}

// checkPlans reports plans that no rule defines. Without this check, the keys on such a plan would get
// the rule's own limit unnoticed.
func (f *file) checkPlans(p *problems) {
	anywhere := make(map[string]bool)
	for _, s := range f.rules {
		for name := range s.plans {
			anywhere[name] = true
		}
		for _, key := range slices.Sorted(maps.Keys(s.keys)) {
			plan := s.keys[key].plan
			if _, ok := s.plans[plan.value]; plan.value != "" && !ok {
				p.addf(plan.at, "rule %q has no plan %q", s.name, plan.value)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(f.keys)) {
		if plan := f.keys[key]; !anywhere[plan.value] {
			like := ""
			if _, err := limit.Parse(plan.value); err == nil {
				like = ": here keys are put on plans, and a limit for one key belongs in the keys of its rule"
			}
			p.addf(plan.at, "no rule has a plan %q%s", plan.value, like)
		}
	}
}
