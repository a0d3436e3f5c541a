package model

import (
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"pgregory.net/rapid"
)

// Law 1: no window holds more units than the algorithm's worst case.
func TestWorstCaseHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSubject(t)
		m := s.start(t)
		now := drawNow(t, s)
		var last Outcome
		var granted grants
		for range rapid.IntRange(1, 80).Draw(t, "requests") {
			now += drawStep(t, s, now, last)
			cost := drawCost(t, s, last)
			if last = m.Decide(now, cost); last.Allowed {
				granted.add(now, cost)
			}
		}
		checkBounds(t, s, granted)
	})
}

func checkBounds(t *rapid.T, s subject, granted grants) {
	if got, worst := granted.max(s.window()), s.a.WorstCase(s.l); got > worst {
		t.Fatalf("%v %v: %d units in a window, worst case is %d", s.l, s.a, got, worst)
	}
	if k := int64(s.a.Buckets()); k >= 2 {
		shorter := s.window() - s.window()/k // W(1-1/k); rounded up, as stamps are whole
		if got := granted.max(shorter); got > s.l.Quota() {
			t.Fatalf("%v %v: %d units in a window of W(1-1/k)", s.l, s.a, got)
		}
	}
}

// The worst cases are not just bounds: requests that are timed with knowledge of the algorithm reach them. Here the
// window is a minute that starts at a full minute.
func TestWorstCaseIsReached(t *testing.T) {
	const minute = 60_000_000
	l := limit.PerMinute(10).WithBurst(4)
	type request struct{ now, cost int64 }
	for _, test := range []struct {
		a        limit.Algorithm
		requests []request
	}{
		{limit.SlidingLog(), []request{{minute, 10}, {2*minute - 1, 1}}},
		{limit.SlidingCounter(16, limit.Strict), []request{{minute, 10}, {2*minute - 1, 1}}},
		// The first ten units are at the very end of their bucket. By the end of the next bucket the estimate
		// counts them as a single unit, though all ten are less than a window old.
		{limit.SlidingCounter(1, limit.Estimate), []request{{2*minute - 1, 10}, {3*minute - 2, 9}}},
		{limit.SlidingCounter(2, limit.Estimate), []request{{minute + minute/2 - 1, 10}, {2*minute + minute/2 - 2, 9}}},
		// A full burst, and then each unit as soon as it has returned.
		{limit.GCRA(), []request{
			{0, 4}, {6e6, 1}, {12e6, 1}, {18e6, 1}, {24e6, 1}, {30e6, 1}, {36e6, 1}, {42e6, 1}, {48e6, 1}, {54e6, 1},
		}},
		{limit.FixedWindow(), []request{{2*minute - 1, 10}, {2 * minute, 10}}},
	} {
		m, err := New(l, test.a)
		if err != nil {
			t.Fatal(err)
		}
		var granted grants
		for _, r := range test.requests {
			if m.Decide(r.now, r.cost).Allowed {
				granted.add(r.now, r.cost)
			}
		}
		if got, want := granted.max(minute), test.a.WorstCase(l); got != want {
			t.Errorf("%v: %d units in a window, want %d", test.a, got, want)
		}
	}
}

// This is the well-known example of the two-counter approximation: 5 per minute, 8 units in the previous minute, 45
// s into this one. A quarter of the previous minute is still in the window, so its 8 units count as 2. (Eight units
// are more than this limit ever grants, so they are charged under a larger limit.)
func TestEstimateWorkedExample(t *testing.T) {
	const minute = 60_000_000
	for _, test := range []struct {
		current   int64
		allowed   bool
		remaining int64
	}{
		{current: 3, allowed: false, remaining: 0}, // estimate 5
		{current: 2, allowed: true, remaining: 0},  // estimate 4, and this unit
		{current: 1, allowed: true, remaining: 1},  // estimate 3, and this unit
	} {
		twoCounters := limit.SlidingCounter(1, limit.Estimate)
		m, err := New(limit.PerMinute(100), twoCounters)
		if err != nil {
			t.Fatal(err)
		}
		m.Decide(9*minute, 8)
		m.Decide(10*minute, test.current)
		if err := m.Use(limit.PerMinute(5), twoCounters); err != nil {
			t.Fatal(err)
		}
		out := m.Decide(10*minute+45_000_000, 1)
		if out.Allowed != test.allowed || out.Remaining != test.remaining {
			t.Errorf("with %d units this minute: %+v", test.current, out)
		}
		// 8 units count as 1 when an eighth of the minute is left, 7.5 s later.
		if want := (7500 * time.Millisecond).Microseconds(); !out.Allowed && out.RetryAfter != want {
			t.Errorf("retry after %d µs, want %d", out.RetryAfter, want)
		}
	}
}
