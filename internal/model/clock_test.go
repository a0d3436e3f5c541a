package model

import (
	"math"
	"testing"

	"github.com/tierlimit/tierlimit/limit"
	"pgregory.net/rapid"
)

// Nothing is granted twice when the outer clock is set back again and again, neither on the key's own clock nor in
// real time. No key waits for the outer clock to catch up.
func TestClockStepsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSubject(t)
		m := s.start(t)
		elapsed := drawNow(t, s)
		now := elapsed // the outer clock
		var last Outcome
		var byKey, byReal grants
		newest := int64(math.MinInt64)
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			step := drawStep(t, s, now+m.clock.offset, last)
			elapsed += step
			now += step
			if rapid.IntRange(0, 4).Draw(t, "set back") == 0 {
				now -= rapid.Int64Range(1, now/4).Draw(t, "by")
			}
			cost := drawCost(t, s, last)
			last = m.Decide(now, cost)
			keyTime := now + m.clock.offset
			if keyTime < newest {
				t.Fatalf("%v %v: the key's clock went back behind its last charge", s.l, s.a)
			}
			if last.Allowed {
				byKey.add(keyTime, cost)
				byReal.add(elapsed, cost)
				newest = keyTime
			}
			checkWaits(t, s, m, now, cost, last)
			if lock := s.longestLock(); last.RetryAfter > lock || last.NextAfter > lock || last.ResetAfter > lock {
				t.Fatalf("%v %v: locked for longer than %d: %+v", s.l, s.a, lock, last)
			}
		}
		checkBounds(t, s, byKey)
		checkBounds(t, s, byReal)
	})
}

// However a clock jumps forward and back, the bounds hold on the key's own clock.
func TestClockJumpsAround(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSubject(t)
		m := s.start(t)
		now := drawNow(t, s)
		var last Outcome
		var byKey grants
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			direction := rapid.SampledFrom([]int64{-1, 1}).Draw(t, "direction")
			now = max(0, now+direction*drawStep(t, s, now, last))
			cost := drawCost(t, s, last)
			if last = m.Decide(now, cost); last.Allowed {
				byKey.add(now+m.clock.offset, cost)
			}
			checkWaits(t, s, m, now, cost, last)
		}
		checkBounds(t, s, byKey)
	})
}

// If the clock steps back by an hour after a full window, the key is locked for as long as without the step, and
// not for an hour more.
func TestClockStepBackByAnHour(t *testing.T) {
	const second, hour = 1_000_000, 3_600_000_000
	m, err := New(limit.PerMinute(10), limit.SlidingLog())
	if err != nil {
		t.Fatal(err)
	}
	m.Decide(10*hour, 10)
	out := m.Decide(9*hour, 1)
	if want := (Outcome{RetryAfter: 60 * second, NextAfter: 60 * second, ResetAfter: 60 * second, Stamp: out.Stamp}); out != want {
		t.Errorf("right after the step: %+v, want %+v", out, want)
	}
	if out := m.Decide(9*hour+60*second-1, 1); out.Allowed || out.RetryAfter != 1 {
		t.Errorf("a microsecond before the window has passed: %+v", out)
	}
	if out := m.Decide(9*hour+60*second, 10); !out.Allowed {
		t.Errorf("a window after the step: %+v", out)
	}
}

// Between a denial and the next request the clock may go back, though not past the last charge. Units that had left
// the window at the denial are then in it again, so a denial must not forget them.
func TestClockStepBackToBeforeADenial(t *testing.T) {
	const second = 1_000_000
	for _, a := range []limit.Algorithm{limit.SlidingLog(), limit.SlidingCounter(60, limit.Strict)} {
		m, err := New(limit.PerMinute(2), a)
		if err != nil {
			t.Fatal(err)
		}
		m.Decide(100*second, 1)
		m.Decide(130*second, 1)
		if out := m.Decide(165*second, 2); out.Allowed || out.Remaining != 1 {
			t.Errorf("%v: after the first unit has left: %+v", a, out)
		}
		if out := m.Decide(140*second, 1); out.Allowed {
			t.Errorf("%v: with both units in the window again: %+v", a, out)
		}
	}
}
