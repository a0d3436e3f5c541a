package model

import (
	"testing"

	"github.com/tierlimit/tierlimit/limit"
	"pgregory.net/rapid"
)

// A denial changes nothing, whatever the rule: once the first rule is in force again, the key is as it was.
func TestRulesThatOnlyDenyLeaveNoTrace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := openBooks(t)
		for range rapid.IntRange(1, 20).Draw(t, "operations") {
			b.next(t)
		}
		untouched := b.m.Clone().(*key)
		for range rapid.IntRange(1, 10).Draw(t, "changes") {
			other := drawSubject(t)
			if err := b.m.Use(other.l, other.a); err != nil {
				t.Fatal(err)
			}
			b.now += drawStep(t, other, b.now, b.last)
			b.m.Peek(b.now, other.capacity())
			if cost := drawCost(t, other, b.last); !b.m.Peek(b.now, cost).Allowed {
				b.last = b.m.Decide(b.now, cost)
			}
		}
		if err := b.m.Use(b.s.l, b.s.a); err != nil {
			t.Fatal(err)
		}
		checkSame(t, b.s, untouched, b.m, b.now)
	})
}

// Law 1 holds while two versions of a limit are in use at once, with the same algorithm and the same window: no
// window holds more than the larger version's worst case. For GCRA this is the worst case of the larger quota with
// the larger burst, because one version may let its rate through, and then the other its burst. No more units are
// granted at once than the larger version could grant.
func TestWorstCaseHoldsForTwoVersions(t *testing.T) {
	for _, a := range append(limit.Algorithms(), limit.SlidingCounter(1, limit.Estimate)) {
		t.Run(a.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				one := drawSubject(t)
				one.a = a
				checkVersions(t, one, drawVersion(t, one))
			})
		})
	}
}

func checkVersions(t *rapid.T, one, other subject) {
	larger := limit.Per(max(one.l.Quota(), other.l.Quota()), one.l.Window()).WithBurst(max(one.l.Burst(), other.l.Burst()))
	m := one.start(t)
	now := drawNow(t, one)
	var last Outcome
	var granted grants
	for range rapid.IntRange(1, 60).Draw(t, "requests") {
		version := rapid.SampledFrom([]subject{one, other}).Draw(t, "version")
		if err := m.Use(version.l, version.a); err != nil {
			t.Fatal(err)
		}
		now += drawStep(t, version, now, last)
		if last = m.Decide(now, drawCost(t, version, last)); last.Allowed {
			granted.add(now, last.Granted)
		}
		if got, most := granted.max(one.window()), one.a.WorstCase(larger); got > most {
			t.Fatalf("%v and %v, %v: %d units in a window, the larger worst case is %d", one.l, other.l, one.a, got, most)
		}
		if got, most := granted.max(1), one.a.Capacity(larger); got > most {
			t.Fatalf("%v and %v, %v: %d units at once, the larger capacity is %d", one.l, other.l, one.a, got, most)
		}
	}
}

// drawVersion draws another limit over the same window.
func drawVersion(t *rapid.T, s subject) subject {
	quota := rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, 2*s.l.Quota())).Draw(t, "other quota")
	l := limit.Per(min(quota, limit.MaxQuota), s.l.Window())
	burst := rapid.SampledFrom([]int64{0, 1, quota, s.l.Burst()}).Draw(t, "other burst")
	if bursting := l.WithBurst(burst); bursting.Validate() == nil {
		l = bursting
	}
	return subject{l, s.a}
}

// After a rule gets another algorithm, units continue to count for as long as before, plus at most the time that
// the algorithms take to return a unit. So a raised limit never grants less because another algorithm counts it.
func TestUnitsLeaveInTimeAfterAChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		exact := []limit.Algorithm{
			limit.SlidingLog(), limit.SlidingLogZSet(), limit.SlidingCounter(1, limit.Strict), limit.SlidingCounter(16, limit.Strict),
		}
		before := rapid.SampledFrom(exact).Draw(t, "before")
		after := rapid.SampledFrom(exact).Draw(t, "after")
		most := int64(1000)
		if before.Buckets() == 0 && after.Buckets() == 0 {
			most = 64 // so few units are inherited one by one
		}
		quota := rapid.Int64Range(1, most).Draw(t, "quota")
		raised := quota + rapid.Int64Range(0, 10).Draw(t, "raised")
		const window = 1_000_000 // µs
		m, err := New(limit.PerSecond(quota), before)
		if err != nil {
			t.Fatal(err)
		}
		now, late := int64(1000*window), int64(0)
		for _, a := range []limit.Algorithm{before, after} {
			if a.Buckets() > 0 {
				late += window / int64(a.Buckets())
			}
		}
		var granted grants
		for range rapid.IntRange(1, 20).Draw(t, "requests") {
			now += rapid.Int64Range(0, window/4).Draw(t, "step")
			if out := m.TakeUpTo(now, rapid.Int64Range(1, quota).Draw(t, "cost")); out.Granted > 0 {
				granted.add(now, out.Granted)
			}
		}
		if err := m.Use(limit.PerSecond(raised), after); err != nil {
			t.Fatal(err)
		}
		later := now + rapid.Int64Range(0, 2*window).Draw(t, "later")
		counting := int64(0)
		for i, stamp := range granted.stamps {
			if stamp > later-window-late {
				counting += granted.costs[i]
			}
		}
		if free := m.Peek(later, 1).Remaining; free < raised-counting {
			t.Errorf("from %v to %v: %d of %d are free, and %d may count", before, after, free, raised, counting)
		}
	})
}
