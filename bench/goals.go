package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// goal is a bound that tierlimit must keep, and the measured figure.
type goal struct {
	work     string
	figure   string
	bound    float64
	atLeast  bool    // otherwise: at most
	measured float64 // NaN: not measured
	note     string
}

func (g *goal) met() bool {
	if g.atLeast {
		return g.measured >= g.bound
	}
	return g.measured <= g.bound
}

func (g *goal) verdict() string {
	switch {
	case math.IsNaN(g.measured):
		return "not measured"
	case g.met():
		return "met"
	}
	return "not met"
}

func (g *goal) wanted() string {
	if g.atLeast {
		return "≥ " + plain(g.bound)
	}
	return "≤ " + plain(g.bound)
}

func (g goal) MarshalJSON() ([]byte, error) {
	m := map[string]any{"work": g.work, "figure": g.figure, "wanted": g.wanted(), "verdict": g.verdict(), "note": g.note}
	if !math.IsNaN(g.measured) {
		m["measured"] = g.measured
	}
	return json.Marshal(m)
}

// goals compares the measured figures with the goals. Ratios are medians of the ratios within each round, like those
// in the tables.
func (r *report) goals() []goal {
	return join(
		r.speedGoals(),
		r.errorGoals(),
		r.zipfGoals(),
		r.costGoals(),
		r.inProcessGoals("denied in process, one hot key", "denied", nameDenial, 1.25),
		r.inProcessGoals("denied in process, ten times the keys, zipf", "denied-many", nameDenial, 1.25),
		r.inProcessGoals("allowed from a lease", "lease", nameLease, 1.5),
		r.inProcessGoals("decided in an outage", "outage", nameOutage, 1.5),
		r.heldGoals(),
		r.overloadGoals(overloadGroup, nameGCRA, "offered twice what Redis can decide"),
		r.overloadGoals(overloadGroup, nameFour, "the same, four instances"),
		r.overloadGoals(overloadTen, nameGCRA, "offered ten times what Redis can decide"),
		r.overloadGoals(overloadTen, nameFour, "the same, four instances"),
		r.sharedGoals(),
		r.loadGoals(),
		r.memoryGoals(),
	)
}

func (r *report) zipfGoals() []goal {
	const work = "keys zipf(1.1), 100 a minute each"
	g := r.cell("zipf", size{callers: 512}, nameGCRA)
	return []goal{
		{work: work, figure: "decisions/s by the peer's, 512 callers", bound: 8, atLeast: true,
			measured: g.ratioTo(r.cell("zipf", size{callers: 512}, nameRedisRate), perSecond)},
		{work: work, figure: "Redis calls per decision, 512 callers", bound: 0.02, measured: g.value(redisCalls)},
	}
}

func (r *report) costGoals() []goal {
	return []goal{
		{work: "keys uniform, allowed", figure: "Redis CPU per decision by the peer's, 512 callers", bound: 0.3,
			measured: r.cell("uniform", size{callers: 512}, nameGCRA).ratioTo(r.cell("uniform", size{callers: 512}, nameRedisRate), redisCPU)},
		{work: "a remote decision, hot key", figure: "allocations, 64 callers", bound: 3,
			measured: r.cell("hot", size{callers: 64}, nameGCRA).value(allocations)},
		{work: "a remote decision, keys uniform", figure: "allocations, 64 callers", bound: 3,
			measured: r.cell("uniform", size{callers: 64}, nameGCRA).value(allocations)},
	}
}

// nothing is the bound for no allocations. It is above 0 because ristretto itself allocates in up to one of 64 calls
// of Get, starting the callers allocates, and a remembered denial is asked for again once a second.
const nothing = 0.02

// inProcessGoals returns goals for the number of callers with the worst figures.
func (r *report) inProcessGoals(work, workload, subject string, bound float64) []goal {
	slowest, allocates := math.NaN(), math.NaN()
	slowestNote := ""
	for i := range r.Cells {
		c := &r.Cells[i]
		if c.workload != workload || c.subject != subject {
			continue
		}
		floor := r.cell(workload, c.size, nameRistretto)
		if times := floor.ratioTo(c, perSecond); !(times <= slowest) {
			slowest, slowestNote = times, c.size.words()
		}
		if n := c.value(allocations); !(n <= allocates) {
			allocates = n
		}
	}
	return []goal{
		{work: work, figure: "time by that of ristretto Get + time.Now", bound: bound, measured: slowest, note: slowestNote},
		{work: work, figure: "allocations", bound: nothing, measured: allocates},
	}
}

// starved is the bound for calls that end with the error of their own context, because their goroutines waited for a
// processor for more than a quarter of the deadline before the limiter got to work.
const starved = 0.0001

func (r *report) overloadGoals(workload, subject, work string) []goal {
	v := r.overload(workload, subject)
	rate := ""
	if !math.IsNaN(v[peakRate]) {
		rate = fmt.Sprintf("offered %s of the peak", ratio(v[offeredRate]/v[peakRate]))
	}
	return []goal{
		{work: work, figure: "times a breaker opened", bound: 0, measured: v[breakerOpened]},
		{work: work, figure: "goodput by the peak", bound: 0.9, atLeast: true, measured: v[goodput], note: rate},
		{work: work, figure: "calls without a decision, of all", bound: starved, measured: v[undecidedShare]},
		{work: work, figure: "p99 of all calls by the deadline", bound: 1, measured: v[allP99] / float64(deadline.Microseconds())},
	}
}

// sharedGoals compares with a program that decides nothing for the calls that are too many. If Redis and the callers
// share the processors, making more calls leaves Redis less time, whatever a limiter does.
func (r *report) sharedGoals() []goal {
	v, least := r.overload(overloadShared, nameGCRA), r.overload(overloadShared, nameAtMost)
	return []goal{{work: "offered twice as much, and Redis shares the processors", figure: "goodput by that without a limiter for calls above 512", bound: 0.9, atLeast: true,
		measured: v[goodput] / least[goodput]}}
}

func (r *report) memoryGoals() (goals []goal) {
	for _, want := range []struct {
		subject string
		bound   float64
	}{{nameGCRA, 135}, {nameCounter1, 135}, {nameLog, 6000}} {
		g := goal{work: "a key in Redis, 1,000 of 1,000", figure: "bytes, " + want.subject, bound: want.bound, measured: math.NaN()}
		for _, m := range r.Memories {
			if m.subject == want.subject {
				g.measured = m.full
			}
		}
		goals = append(goals, g)
	}
	return goals
}

// errNotMet is returned if everything was measured and at least one goal was missed.
var errNotMet = errors.New("not all goals are met")

// judged returns errNotMet if a measured goal was missed.
func (r *report) judged() error {
	for _, g := range r.goals() {
		if !math.IsNaN(g.measured) && !g.met() {
			return errNotMet
		}
	}
	return nil
}

// cell returns a cell, or one without rounds if it was not measured.
func (r *report) cell(workload string, z size, subject string) *cell {
	for i := range r.Cells {
		if c := &r.Cells[i]; c.workload == workload && c.size == z && c.subject == subject {
			return c
		}
	}
	return &cell{}
}

// bestPeer returns the sound cell of a peer with the most decisions per second.
func (r *report) bestPeer(workload string, z size) *cell {
	best := &cell{}
	for i := range r.Cells {
		c := &r.Cells[i]
		if c.workload == workload && c.size == z && c.role == peer && c.sound() && c.values[perSecond] > best.values[perSecond] {
			best = c
		}
	}
	return best
}

// value returns the median of the rounds, or NaN if nothing was measured.
func (c *cell) value(m metric) float64 { return median(c.column(m)) }

// overload returns a subject's figures under overload, or NaN if nothing was measured.
func (r *report) overload(workload, subject string) (v [overloadMetrics]float64) {
	for _, o := range r.Overloads {
		if o.workload == workload && o.subject == subject {
			return o.values
		}
	}
	for m := range v {
		v[m] = math.NaN()
	}
	return v
}
