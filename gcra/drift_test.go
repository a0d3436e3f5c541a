package gcra

import (
	"testing"

	"github.com/tierlimit/tierlimit/limit"
)

const start = 1_790_123_456_789_012

// greedy takes cost units in the first microsecond in which they are free, again and again until the given time,
// and returns how many it got.
func greedy(r Rate, cost, until int64) (units int64, s State) {
	now := int64(start)
	for {
		now += r.Wait(s, now, cost)
		if now >= until {
			return units, s
		}
		s = r.Take(s, now, cost)
		units += cost
	}
}

// Law 10: no rate drifts. A caller that takes each unit at once gets exactly the quota per window, after the
// first burst, even if a unit does not take a whole number of microseconds to return. With the interval rounded
// down to whole microseconds, 3 million a second would be no limit at all; rounded up, a third of it.
func TestRatesDoNotDrift(t *testing.T) {
	for _, test := range []struct {
		limit   limit.Limit
		windows int64
	}{
		{limit.PerSecond(3_000_000).WithBurst(4), 2},
		{limit.PerSecond(3_000_000), 2},
		{limit.PerSecond(700_000).WithBurst(2), 5},
		{limit.PerSecond(999_983).WithBurst(3), 3}, // a prime
		{limit.PerSecond(7).WithBurst(2), 1000},
		{limit.Per(3, limit.MinWindow).WithBurst(2), 10_000},
		{limit.Per(7, limit.MaxWindow).WithBurst(2), 100},
		{limit.Per(1, limit.MaxWindow), 100},
	} {
		r := NewRate(test.limit)
		quota, window := test.limit.Quota(), test.limit.Window().Microseconds()
		// The last microsecond of a half-open window is over before the units that return in it (one, or a few at
		// high rates) can be taken: law 1's worst case.
		inLast := (quota + window - 1) / window
		want := test.windows*quota + r.Burst() - inLast
		if got, _ := greedy(r, 1, start+test.windows*window); got != want {
			t.Errorf("%v: %d units in %d windows, want %d", test.limit, got, test.windows, want)
		}
	}
}

// The same is true for large costs: the time that a charge takes is not rounded either.
func TestChargesDoNotDrift(t *testing.T) {
	// 70,001 units take 100,001 µs and 3 sevenths.
	const cost, windows = 70_001, 7000
	l := limit.PerSecond(700_000).WithBurst(2 * cost)
	units, s := greedy(NewRate(l), cost, start+windows*l.Window().Microseconds())
	if want := (State{TAT: start + units*10/7, Part: units * 10 % 7}); s != want {
		t.Errorf("%d units moved the arrival time to %+v, want %+v", units, s, want)
	}
	if least := int64(windows * 700_000); units < least || units > least+l.Burst() {
		t.Errorf("%d units in %d windows, want %d and a burst at most", units, windows, least)
	}
}

// Time comes in whole microseconds, so a burst that does not bridge a microsecond cannot keep up: the rest of the
// microsecond in which a wait ends is lost. See the package documentation.
func TestABurstOfOneLosesParts(t *testing.T) {
	for quota, want := range map[int64]int64{700_000: 500_000, 3_000_000: 1_000_000, 500_000: 500_000} {
		l := limit.PerSecond(quota).WithBurst(1)
		if got, _ := greedy(NewRate(l), 1, start+1_000_000); got != want {
			t.Errorf("%v: %d units in a second, want %d", l, got, want)
		}
	}
}

// A key that was not used for a long time has no more than a burst: unused time is not saved up.
func TestUnusedTimeIsNotSavedUp(t *testing.T) {
	r := NewRate(limit.PerSecond(10).WithBurst(4))
	s := r.Take(State{}, 1_000_000, 1)
	for _, idle := range []int64{100_000, 1_000_000, 1_000_000_000_000} {
		if free := r.Free(s, 1_000_000+idle); free != 4 {
			t.Errorf("%d free after %d µs, want the burst of 4", free, idle)
		}
	}
	s = r.Take(s, 10_000_000, 4)
	if free := r.Free(s, 10_000_000); free != 0 || s.TAT != 10_400_000 {
		t.Errorf("after a whole burst %d are free, and %+v", free, s)
	}
}
