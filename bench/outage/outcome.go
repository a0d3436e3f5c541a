package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/tierlimit/tierlimit/bench/outage/factor"
)

// outcome is the measurement of one scenario.
type outcome struct {
	Name      string     `json:"name"`
	About     string     `json:"about"`
	Factors   []factors  `json:"factors"`
	Latencies []latency  `json:"latencies"`
	Checks    []check    `json:"checks"`
	Notes     []string   `json:"notes"`
	Outage    float64    `json:"outage"` // seconds from the cut to the end of the outage
	Timeline  []interval `json:"timeline"`
}

// factors are the most units in any window, divided by the limit, grouped by when the window ends. Least is the
// fewest units in a window wholly inside the outage. NaN means that there is no such window.
type factors struct {
	Subject                                            string
	Before, Cut, Inside, Recovery, After, Worst, Least float64
}

// latency is of this library's calls that one tier decided. The tier "open" is the calls decided without Redis that
// began while the breaker was open.
type latency struct {
	Tier                string
	Calls               int
	P50, P99, P999, Max time.Duration
}

// check compares a measured figure with its goal.
type check struct {
	What    string  `json:"what"`
	Value   float64 `json:"value"`
	Goal    float64 `json:"goal"`
	Tested  float64 `json:"-"`
	AtLeast bool    `json:"at_least"`
}

func (c check) met() bool { return c.keeps(c.Goal) }

func (c check) keeps(bound float64) bool {
	if c.AtLeast {
		return c.Value >= bound
	}
	return c.Value <= bound
}

func (f *fleet) check(what string, value float64, b bound, atLeast bool) {
	f.checks = append(f.checks, check{what, value, b.goal, b.tested, atLeast})
}

func (f *fleet) outcome(calls []call) outcome {
	sc := f.scenario
	o := outcome{Name: sc.name, About: sc.about, Outage: float64(f.up-f.cut) / 1e6}
	for by := range subjects {
		if f.duty.Window == f.Window && (by == ours || sc.baselines) {
			o.Factors = append(o.Factors, f.factors(by, calls))
		}
	}
	o.Latencies = latencies(calls)
	f.checkCalls(o.Latencies)
	o.Checks, o.Notes = f.checks, f.notes
	o.Timeline = f.timeline(calls)
	return o
}

// grants returns the units of a key that a subject admitted.
func grants(calls []call, by subject, key uint32) (g []factor.Grant) {
	for _, c := range calls {
		if c.allowed && c.by == by && c.key == key {
			g = append(g, factor.Grant{At: c.at, Units: 1})
		}
	}
	return g
}

// factors measures key 0, which all scenarios offer.
func (f *fleet) factors(by subject, calls []call) factors {
	g := grants(calls, by, 0)
	window, quota := f.Window.Microseconds(), float64(f.Quota)
	inside := min(f.cut+window, f.up)
	between := func(from, to int64) float64 {
		if from >= to {
			return math.NaN()
		}
		units, _ := factor.Most(g, window, from, to)
		return float64(units) / quota
	}
	r := factors{
		Subject: by.String(), Before: between(f.began, f.cut), Cut: between(f.cut, inside), Inside: between(inside, f.up),
		Recovery: between(f.up, min(f.up+window, f.end)), After: between(f.up+window, f.end), Worst: between(f.began, f.end), Least: math.NaN(),
	}
	if units, ok := factor.Least(g, window, f.cut, f.up); ok {
		r.Least = float64(units) / quota
	}
	return r
}

// bareGet names the bare calls that were made while the breaker was open.
const bareGet = "bare Get meanwhile"

func latencies(calls []call) (all []latency) {
	took := make(map[string][]time.Duration)
	for _, c := range calls {
		if c.by == bare && c.degraded {
			took[bareGet] = append(took[bareGet], c.took)
		}
		if c.by != ours {
			continue
		}
		took[c.tier.String()] = append(took[c.tier.String()], c.took)
		if c.degraded && c.tier.Degraded() {
			took["open"] = append(took["open"], c.took)
		}
	}
	for _, tier := range []string{"redis", "local", "fallback", "overload", "open", bareGet} {
		t := took[tier]
		if len(t) == 0 {
			continue
		}
		slices.Sort(t)
		at := func(q float64) time.Duration { return t[int(q*float64(len(t)-1))] }
		all = append(all, latency{tier, len(t), at(0.5), at(0.99), at(0.999), t[len(t)-1]})
	}
	return all
}

// checkCalls checks what must hold in every scenario: no errors, and no call after its deadline.
func (f *fleet) checkCalls(all []latency) {
	var calls int64
	var worst, stalls time.Duration
	slow, errors, texts := 0, 0, make(map[string]int)
	for _, r := range f.finals {
		calls += r.Calls
		for text, n := range r.Errors {
			texts[text] += n
			errors += n
		}
		for _, s := range r.Slow {
			if s.By != ours {
				continue
			}
			stalls = max(stalls, s.Stall)
			late := s.Took - f.Deadline - max(0, s.Stall)
			worst = max(worst, late)
			if late > lateness {
				slow++
			}
		}
	}
	f.check("errors", float64(errors), errorCount, false)
	if f.scenario.overload == nil {
		f.check(fmt.Sprintf("calls above the deadline by over %v", lateness), float64(slow), lateCalls, false)
	} else {
		f.note("%d calls were above their deadline by over %v", slow, lateness)
	}
	f.note("%d calls; the latest ended %v after its deadline; the machine stood still for up to %v", calls, worst.Round(time.Microsecond), stalls.Round(time.Microsecond))
	for _, text := range slices.Sorted(maps.Keys(texts)) {
		f.note("error, %d times: %s", texts[text], text)
	}
	for _, l := range all {
		if l.Tier == "open" && !f.scenario.crowded {
			f.check("p99 with the breaker open, µs", micro(l.P99), openBound(all), false)
		}
	}
}

// openBound returns how long calls may take while the breaker is open. On a machine that is too busy for quick calls,
// it is twice as long as a bare Get at the same time.
func openBound(all []latency) bound {
	b := openP99
	if i := slices.IndexFunc(all, func(l latency) bool { return l.Tier == bareGet }); i >= 0 {
		b.goal = max(b.goal, 2*micro(all[i].P99))
	}
	return b
}

func micro(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// judgeMost checks the worst window of the run.
func judgeMost(f *fleet, calls []call) {
	f.check("worst window / limit", f.factors(ours, calls).Worst, most[f.scenario.name], false)
}

func (f *fleet) judgeLeast(calls []call, least bound) {
	f.check("least window inside / limit", f.factors(ours, calls).Least, least, true)
}
