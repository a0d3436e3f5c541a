package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
)

// cell is what all rounds say of one subject, workload and number of callers.
type cell struct {
	group     string
	reference string
	subject   string
	callers   int
	values    [metrics]float64 // medians
	ratios    [metrics]float64 // to the reference, see medianRatio
	rounds    [][metrics]float64
	decisions [outcomes]uint64 // calls of all rounds
	firstErr  error
}

// newCells sums up a group's rounds, indexed by subject and round.
func newCells(g *group, subjects []*subject, callers int, rounds [][]measurement) []cell {
	var reference []measurement
	for i, s := range subjects {
		if s.name == g.reference {
			reference = rounds[i]
		}
	}
	cells := make([]cell, len(subjects))
	for i, s := range subjects {
		c := &cells[i]
		*c = cell{group: g.title, reference: g.reference, subject: s.name, callers: callers}
		for _, m := range rounds[i] {
			c.rounds = append(c.rounds, m.values)
			for o, n := range m.load.calls {
				c.decisions[o] += n
			}
			if c.firstErr == nil {
				c.firstErr = m.load.firstErr
			}
		}
		for m := range metrics {
			c.values[m] = median(column(rounds[i], m))
			c.ratios[m] = medianRatio(column(rounds[i], m), column(reference, m))
		}
	}
	return cells
}

func column(rounds []measurement, m metric) []float64 {
	values := make([]float64, len(rounds))
	for i, r := range rounds {
		values[i] = r.values[m]
	}
	return values
}

// sound reports whether the cell measured what it was to measure.
func (c *cell) sound() bool {
	return c.decisions[unexpected]+c.decisions[degraded]+c.decisions[failed] == 0
}

// flaws says what makes a cell unsound; "" if nothing does.
func (c *cell) flaws() string {
	var found []string
	for o := unexpected; o < outcomes; o++ {
		if n := c.decisions[o]; n > 0 {
			found = append(found, fmt.Sprintf("%d %s", n, o))
		}
	}
	if c.firstErr != nil {
		found = append(found, "first error: "+c.firstErr.Error())
	}
	return strings.Join(found, ", ")
}

func (c cell) MarshalJSON() ([]byte, error) {
	rounds := make([]map[string]any, len(c.rounds))
	for i := range c.rounds {
		rounds[i] = named(&c.rounds[i])
	}
	return json.Marshal(map[string]any{
		"group":     c.group,
		"reference": c.reference,
		"subject":   c.subject,
		"callers":   c.callers,
		"median":    named(&c.values),
		"ratio":     named(&c.ratios),
		"rounds":    rounds,
		"sound":     c.sound(),
		"flaws":     c.flaws(),
	})
}

// named pairs values with their names, without those that JSON cannot hold.
func named(values *[metrics]float64) map[string]any {
	m := make(map[string]any)
	for i, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			m[metricNames[i]] = v
		}
	}
	return m
}
