package main

import (
	"math"
	"testing"
)

// measured is a cell whose rounds had these decisions per second and p99.
func measured(subject string, r role, perSecondAndP99 ...[2]float64) cell {
	c := cell{workload: "hot", callers: 512, subject: subject, role: r}
	for _, v := range perSecondAndP99 {
		var values [metrics]float64
		values[perSecond], values[p99] = v[0], v[1]
		c.rounds = append(c.rounds, values)
	}
	c.values[perSecond] = c.value(perSecond)
	c.calls[allowed] = 1
	return c
}

func TestGoals(t *testing.T) {
	broken := measured(nameThrottled, peer, [2]float64{900, 1}, [2]float64{900, 1}, [2]float64{900, 1})
	broken.calls[failed] = 1
	r := &report{Cells: []cell{
		// The machine was half as fast in the second round.
		measured(nameGCRA, ours, [2]float64{3100, 5}, [2]float64{1550, 10}, [2]float64{3100, 5}),
		measured(nameRedisRate, peer, [2]float64{100, 90}, [2]float64{50, 180}, [2]float64{100, 90}),
		measured(nameRueidis, peer, [2]float64{400, 1}, [2]float64{200, 1}, [2]float64{400, 1}),
		broken,
		measured(nameReturn, floor, [2]float64{800, 1}, [2]float64{800, 1}, [2]float64{800, 1}),
	}}
	got := make(map[string]goal)
	for _, g := range r.goals() {
		got[g.work+", "+g.figure] = g
	}
	for _, tc := range []struct {
		what, verdict, note string
		measured            float64
	}{
		{"hot key, allowed, decisions/s by the peer's, 512 callers", "met", "", 31},
		{"hot key, allowed, decisions/s by the best peer's, 512 callers", "not met", nameRueidis, 7.75},
		{"hot key, allowed, p99 by the peer's, 512 callers", "not met", "", 5.0 / 90},
		{"hot key, allowed, decisions/s by the peer's, 64 callers", "not measured", "", math.NaN()},
		{"allowed from a lease, allocations", "not measured", "", math.NaN()},
		{"offered twice what Redis can decide, times a breaker opened", "not measured", "", math.NaN()},
		{"0 instances on one Redis, times a breaker opened", "not measured", "", math.NaN()},
	} {
		g, ok := got[tc.what]
		if !ok {
			t.Errorf("no goal %q", tc.what)
			continue
		}
		same := g.measured == tc.measured || math.IsNaN(g.measured) && math.IsNaN(tc.measured)
		if !same || g.verdict() != tc.verdict || g.note != tc.note {
			t.Errorf("%s: %g, %s, %q; want %g, %s, %q", tc.what, g.measured, g.verdict(), g.note, tc.measured, tc.verdict, tc.note)
		}
	}
}

// Of what is decided in process the worst number of callers counts.
func TestInProcessGoalIsOfTheWorst(t *testing.T) {
	at := func(callers int, subject string, rate, allocs float64) cell {
		c := measured(subject, ours, [2]float64{rate, 1})
		c.workload, c.callers = "denied", callers
		c.rounds[0][allocations] = allocs
		return c
	}
	r := &report{Cells: []cell{
		at(1, nameDenial, 100, 0.5), at(1, nameRistretto, 120, 0),
		at(8, nameDenial, 100, 0), at(8, nameRistretto, 200, 0),
		at(64, nameDenial, 100, 0), at(64, nameRistretto, 110, 0),
	}}
	goals := r.inProcessGoals("", "denied", nameDenial, 1.25)
	if goals[0].measured != 2 || goals[0].note != "8 callers" || goals[1].measured != 0.5 {
		t.Errorf("%+v", goals)
	}
}
