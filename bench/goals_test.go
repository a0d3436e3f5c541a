package main

import (
	"math"
	"testing"
)

// measured returns a cell whose rounds have these decisions per second and p99.
func measured(subject string, r role, perSecondAndP99 ...[2]float64) cell {
	c := cell{workload: "uniform", size: size{callers: 512}, subject: subject, role: r}
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
		measured(nameGCRA, ours, [2]float64{600, 5}, [2]float64{300, 10}, [2]float64{600, 5}),
		measured(nameRedisRate, peer, [2]float64{100, 8}, [2]float64{50, 16}, [2]float64{100, 8}),
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
		{"uniform, 512 callers, tierlimit, GCRA: decisions/s by that of redis_rate", "met", "", 6},
		{"uniform, 512 callers, tierlimit, GCRA: decisions/s by that of the best peer", "not met", nameRueidis, 1.5},
		{"uniform, 512 callers, tierlimit, GCRA: p99 by that of redis_rate", "not met", "", 5.0 / 8},
		{"uniform, 64 callers, tierlimit, GCRA: decisions/s by that of redis_rate", "not measured", "", math.NaN()},
		{"allowed from a lease, allocations", "not measured", "", math.NaN()},
		{"offered twice what Redis can decide, times a breaker opened", "not measured", "", math.NaN()},
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

// A run in which a goal was missed returns an error. Figures that were not measured miss no goal.
// Decisions without Redis are fast, and denials from memory too. Neither is to meet a goal of decisions by Redis.
func TestWrongDecisionsMissAGoal(t *testing.T) {
	for _, processes := range []int{0, 16} {
		for o := range outcomes {
			ours := measured(nameGCRA, ours, [2]float64{2000, 1})
			ours.size.processes = processes
			ours.calls[o] = 1
			want := errNotMet
			if o == allowed {
				want = nil
			}
			if err := (&report{Cells: []cell{ours}}).judged(); err != want {
				t.Errorf("%d processes, a call was %v: %v, want %v", processes, o, err, want)
			}
		}
	}
	cut := measured(nameOutage, ours, [2]float64{2000, 1})
	cut.workload, cut.mostly, cut.calls = "outage", degraded, [outcomes]uint64{degraded: 1}
	if err := (&report{Cells: []cell{cut}}).judged(); err != nil {
		t.Errorf("decided without Redis while it is lost: %v", err)
	}
}

func TestMissedGoalIsAnError(t *testing.T) {
	at := func(workload, subject string, rates ...[2]float64) cell {
		c := measured(subject, ours, rates...)
		c.workload, c.size = workload, size{callers: 64}
		return c
	}
	semaphore := at(slotsGroup, nameSemaphore, [2]float64{100, 1})
	for rate, want := range map[float64]error{300: nil, 299: errNotMet} {
		r := &report{Cells: []cell{at(slotsGroup, nameSlots, [2]float64{rate, 1}), semaphore}}
		if err := r.judged(); err != want {
			t.Errorf("%v times the semaphore's decisions: %v, want %v", rate/100, err, want)
		}
	}
	if err := (&report{}).judged(); err != nil {
		t.Errorf("nothing measured: %v", err)
	}
}

// Lost slots need no renewal, so a run that lost slots misses its goal however few commands it sent.
func TestRenewalGoals(t *testing.T) {
	for _, tc := range []struct {
		batches, lost float64
		want          error
	}{{1, 0, nil}, {1.25, 0, errNotMet}, {0.5, 1, errNotMet}} {
		n := renewal{keys: 1}
		n.values[batchesPerThird], n.values[lostSlots] = tc.batches, tc.lost
		if err := (&report{Renewals: []renewal{n}}).judged(); err != tc.want {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}

// Heartbeats are not counted as renewals.
func TestDecisionCalls(t *testing.T) {
	if n := decisionCalls(map[string]float64{"fcall": 79, "evalsha": 3, "eval": 1, "zremrangebyscore": 8, "zadd": 4}); n != 79 {
		t.Errorf("%v calls", n)
	}
}

// A goal for decisions in process applies to the worst number of callers.
func TestInProcessGoalIsOfTheWorst(t *testing.T) {
	at := func(callers int, subject string, rate, allocs float64) cell {
		c := measured(subject, ours, [2]float64{rate, 1})
		c.workload, c.size = "denied", size{callers: callers}
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
