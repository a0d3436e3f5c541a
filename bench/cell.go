package main

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
)

// cell is the summary of all rounds for one subject, workload and size.
type cell struct {
	workload  string
	group     string // its title
	reference string
	subject   string
	role      role
	size      size
	mostly    outcome
	also      []outcome
	mixed     bool
	values    [metrics]float64 // medians
	ratios    [metrics]float64 // to the reference, see medianRatio
	rounds    [][metrics]float64
	calls     [outcomes]uint64 // of all rounds
	opened    int              // how often a breaker opened, in all rounds
	firstErr  error
}

// newCells summarizes a group's rounds, which are indexed by subject and round.
func newCells(g *group, w *workload, subjects []*subject, z size, rounds [][]measurement) []cell {
	cells := make([]cell, len(subjects))
	for i, s := range subjects {
		c := &cells[i]
		*c = cell{
			workload: w.name, group: g.title, reference: g.reference, subject: s.name, role: s.role, size: z,
			mostly: w.mostly, also: w.also, mixed: w.mixed,
		}
		for _, m := range rounds[i] {
			c.rounds = append(c.rounds, m.values)
			for o, n := range m.load.calls {
				c.calls[o] += n
			}
			c.opened += m.opened
			if c.firstErr == nil {
				c.firstErr = m.load.firstErr
			}
		}
		for m := range metrics {
			c.values[m] = c.value(m)
		}
	}
	var reference cell // without rounds if it was not measured; then there are no ratios
	for _, c := range cells {
		if c.subject == g.reference {
			reference = c
		}
	}
	for i := range cells {
		for m := range metrics {
			cells[i].ratios[m] = cells[i].ratioTo(&reference, m)
		}
	}
	return cells
}

// sound reports whether the cell measured what it should.
func (c *cell) sound() bool { return c.flaws() == "" }

// flaws returns what makes a cell unsound, or "" if nothing does.
func (c *cell) flaws() string {
	var found []string
	var all uint64
	for o, n := range c.calls {
		all += n
		if n > 0 && c.isStray(outcome(o)) {
			found = append(found, fmt.Sprintf("%d %v", n, outcome(o)))
		}
	}
	if !c.mixed && c.calls[c.mostly] <= all/2 {
		found = append(found, fmt.Sprintf("only %d of %d %v", c.calls[c.mostly], all, c.mostly))
	}
	if c.opened > 0 {
		found = append(found, count(c.opened, "time")+" a breaker opened")
	}
	if c.firstErr != nil {
		found = append(found, "first error: "+c.firstErr.Error())
	}
	return strings.Join(found, ", ")
}

// isStray reports whether an outcome is none that the workload allows.
func (c *cell) isStray(o outcome) bool { return o != c.mostly && !slices.Contains(c.also, o) }

// strays returns how many calls had such an outcome.
func (c *cell) strays() (sum uint64) {
	for o, n := range c.calls {
		if c.isStray(outcome(o)) {
			sum += n
		}
	}
	return sum
}

// ratioTo returns the median over the rounds of this cell's value divided by the other cell's value.
func (c *cell) ratioTo(other *cell, m metric) float64 {
	return medianRatio(c.column(m), other.column(m))
}

func (c *cell) column(m metric) []float64 {
	values := make([]float64, len(c.rounds))
	for i := range c.rounds {
		values[i] = c.rounds[i][m]
	}
	return values
}

func (c cell) MarshalJSON() ([]byte, error) {
	rounds := make([]map[string]float64, len(c.rounds))
	for i := range c.rounds {
		rounds[i] = named(c.rounds[i][:], metricNames[:])
	}
	return json.Marshal(map[string]any{
		"workload":  c.workload,
		"group":     c.group,
		"reference": c.reference,
		"subject":   c.subject,
		"processes": c.size.processes,
		"callers":   c.size.callers,
		"median":    named(c.values[:], metricNames[:]),
		"ratio":     named(c.ratios[:], metricNames[:]),
		"rounds":    rounds,
		"sound":     c.sound(),
		"flaws":     c.flaws(),
	})
}

// named maps names to values, and leaves out values that JSON cannot hold.
func named(values []float64, names []string) map[string]float64 {
	m := make(map[string]float64)
	for i, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			m[names[i]] = v
		}
	}
	return m
}
