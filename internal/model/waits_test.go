package model

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/limit"
)

// The waits in a model's answers are exact: the answer changes at the end of the wait, and not one microsecond
// before it.
func TestWaitsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSubject(t)
		m := s.start(t)
		now := drawNow(t, s)
		var last Outcome
		for range rapid.IntRange(1, 40).Draw(t, "requests") {
			now += drawStep(t, s, now, last)
			cost := drawCost(t, s, last)
			last = m.Decide(now, cost)
			checkWaits(t, s, m, now, cost, last)
		}
	})
}

func checkWaits(t *rapid.T, s subject, m *key, now, cost int64, out Outcome) {
	allowed := func(now, cost int64) bool { return m.Clone().Decide(now, cost).Allowed }

	if out.Allowed && (out.RetryAfter != 0 || out.NextAfter != 0) {
		t.Fatalf("%v %v: allowed and told to wait: %+v", s.l, s.a, out)
	}
	if out.Remaining < 0 || out.Remaining > s.capacity() {
		t.Fatalf("%v %v: %d remaining", s.l, s.a, out.Remaining)
	}
	if out.Remaining > 0 && !allowed(now, out.Remaining) {
		t.Fatalf("%v %v: what remains is not granted: %+v", s.l, s.a, out)
	}
	if out.Remaining < s.capacity() && allowed(now, out.Remaining+1) {
		t.Fatalf("%v %v: more than what remains is granted: %+v", s.l, s.a, out)
	}
	if !out.Allowed {
		if out.RetryAfter < 1 || !allowed(now+out.RetryAfter, cost) || allowed(now+out.RetryAfter-1, cost) {
			t.Fatalf("%v %v: retry of %d is not exact: %+v", s.l, s.a, cost, out)
		}
		if (out.NextAfter == 0) != (out.Remaining > 0) {
			t.Fatalf("%v %v: next and remaining do not agree: %+v", s.l, s.a, out)
		}
	}
	if out.NextAfter > 0 && (!allowed(now+out.NextAfter, 1) || allowed(now+out.NextAfter-1, 1)) {
		t.Fatalf("%v %v: next is not exact: %+v", s.l, s.a, out)
	}
	checkReset(t, s, m, now, out)
}

// A key is reset exactly when its whole capacity is free again. This holds for every algorithm, because the unit
// charged last takes up at least 1 of the capacity until it has left.
func checkReset(t *rapid.T, s subject, m *key, now int64, out Outcome) {
	later := m.Clone().(*key)
	used := later.Decide(now+out.ResetAfter, s.capacity())
	unused := s.start(t).Decide(now+out.ResetAfter+later.clock.offset, s.capacity())
	if used != unused || !used.Allowed {
		t.Fatalf("%v %v: at its reset the key answers %+v, an unused one %+v", s.l, s.a, used, unused)
	}
	if out.ResetAfter > 0 && m.Clone().Decide(now+out.ResetAfter-1, s.capacity()).Allowed {
		t.Fatalf("%v %v: reset before %+v", s.l, s.a, out)
	}
}

// Nothing is granted at any time before the end of a wait. Windows as short as here are not valid limits, but they
// make it possible to try every microsecond, and buckets that are shorter than one.
func TestNothingIsGrantedDuringAWait(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		quota := rapid.Int64Range(1, 12).Draw(t, "quota")
		window := rapid.Int64Range(1, 40).Draw(t, "window")
		burst := rapid.Int64Range(1, 15).Draw(t, "burst")
		a := rapid.SampledFrom(algorithms).Draw(t, "algorithm")
		l := limit.Per(quota, time.Duration(window)*time.Microsecond).WithBurst(burst)
		units, err := newTally(a, l)
		if err != nil {
			t.Fatal(err)
		}
		capacity := units.free(0)
		now := int64(0)
		for range rapid.IntRange(1, 25).Draw(t, "charges") {
			now += rapid.Int64Range(0, window).Draw(t, "step")
			if free := units.free(now); free > 0 {
				units.charge(now, rapid.Int64Range(1, free).Draw(t, "charge"))
			}
			cost := rapid.Int64Range(1, capacity).Draw(t, "cost")
			w := int64(0)
			for units.free(now+w) < cost {
				w++
			}
			if got := units.wait(now, cost); got != w {
				t.Fatalf("%d per %d µs, %v: wait for %d is %d, want %d", quota, window, a, cost, got, w)
			}
			for w = 0; units.free(now+w) < capacity; w++ {
			}
			if got := units.reset(now); got != w {
				t.Fatalf("%d per %d µs, %v: reset is %d, want %d", quota, window, a, got, w)
			}
		}
	})
}
