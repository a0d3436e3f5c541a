package model

import (
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"pgregory.net/rapid"
)

// Law 1 holds around changes of a rule: of the algorithm, the limit, the window and the burst, any number of times.
// Consider two rules that follow one another, and a window as long as the shorter of theirs in which no third rule
// was in force. It holds no more units than the two rules allow.
func TestWorstCaseHoldsAroundAChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := drawChanging(t)
		m, now := before.start(t), drawNow(t, before)
		last, granted := drawTraffic(t, before, m, now, grants{})
		for range rapid.IntRange(1, 4).Draw(t, "changes") {
			after := drawChanging(t)
			if err := m.Use(after.l, after.a); err != nil {
				t.Fatal(err)
			}
			count := len(granted.stamps)
			last, granted = drawTraffic(t, after, m, last, granted)
			got, most := granted.max(min(before.window(), after.window())), worstAroundChange(before, after)
			if got > most {
				t.Fatalf("from %v, %v to %v, %v: %d units in a window, the worst case is %d\nbefore %v\nafter %v",
					before.l, before.a, after.l, after.a, got, most, granted.since(0, count), granted.since(count, len(granted.stamps)))
			}
			before, granted = after, granted.since(count, len(granted.stamps))
		}
	})
}

// worstAroundChange returns the bound that docs/algorithms.md states.
func worstAroundChange(before, after subject) int64 {
	from, to := before.a.WorstCase(before.l), after.a.WorstCase(after.l)
	if after.a.Buckets() > 0 && after.a.Rounding() == limit.Estimate {
		to = 2*max(before.l.Quota(), after.l.Quota()) - 1
	}
	fixed, gcra := limit.FixedWindow(), limit.GCRA()
	switch {
	case before.a.Same(fixed) && after.a.Same(fixed) && before.window() == after.window():
		return max(from, to)
	case before.a.Same(fixed) && after.a.Same(fixed):
		return from + to - min(before.l.Quota(), after.l.Quota())
	case before.a.Same(fixed):
		return max(from, before.l.Quota()+to)
	case after.a.Same(fixed):
		return max(to, from+after.l.Quota())
	case before.a.Same(gcra) && after.a.Same(gcra):
		return max(before.l.Quota(), after.l.Quota()) + max(before.l.Burst(), after.l.Burst()) - 1
	}
	return max(from, to)
}

// drawChanging draws rules that are small enough for the traffic of a few windows to fill them.
func drawChanging(t *rapid.T) subject {
	quota := rapid.Int64Range(1, 12).Draw(t, "quota")
	window := rapid.SampledFrom([]time.Duration{time.Second, time.Second, 2 * time.Second, 1500 * time.Millisecond, 999 * time.Millisecond}).Draw(t, "window")
	return subject{
		l: limit.Per(quota, window).WithBurst(rapid.Int64Range(1, quota).Draw(t, "burst")),
		a: rapid.SampledFrom(append(algorithms, limit.SlidingLogZSet())).Draw(t, "algorithm"),
	}
}

// drawTraffic requests mostly the units that are free, as soon as they are free. It returns the time at which it
// ends.
func drawTraffic(t *rapid.T, s subject, m *key, now int64, granted grants) (int64, grants) {
	last := m.Clone().Peek(now, 1)
	for range rapid.IntRange(0, 30).Draw(t, "requests") {
		now += drawStep(t, s, now, last)
		if last = m.TakeUpTo(now, drawCost(t, s, last)); last.Allowed {
			granted.add(now, last.Granted)
		}
	}
	return now, granted
}

func (g grants) since(from, to int) grants { return grants{g.stamps[from:to:to], g.costs[from:to:to]} }

// When GCRA's rule gets another algorithm, the past that it hands over is the most that it can have granted, at the
// latest possible times. So a client that took all units is held to the new limit in every window, and continues at
// the old rate instead of waiting for a window.
func TestGCRAPacesWhatFollows(t *testing.T) {
	const minute = 60_000_000
	l := limit.PerMinute(100).WithBurst(10)
	for _, a := range append(algorithms, limit.SlidingLogZSet()) {
		if a == limit.GCRA() {
			continue
		}
		m, err := New(l, limit.GCRA())
		if err != nil {
			t.Fatal(err)
		}
		var granted grants
		take := func(from, to int64) (units int64) {
			for now := from; now < to; now += 100_000 {
				out := m.TakeUpTo(now, 10)
				granted.add(now, out.Granted)
				units += out.Granted
			}
			return units
		}
		start := int64(10*minute + minute/2)
		take(start, start+2*minute)
		if err := m.Use(l, a); err != nil {
			t.Fatal(err)
		}
		// A counter returns units late, by up to a sub-window.
		late := int64(0)
		if a.Buckets() > 0 {
			late = minute / int64(a.Buckets())
		}
		units := take(start+2*minute, start+3*minute+late)
		if most := max(limit.GCRA().WorstCase(l), a.WorstCase(l)); granted.max(minute) > most {
			t.Errorf("%v: %d units in a minute, the worst case is %d", a, granted.max(minute), most)
		}
		if units < 90 {
			t.Errorf("%v: %d units in the minute after the change", a, units)
		}
	}
}
