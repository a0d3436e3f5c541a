package tiered

import (
	"fmt"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// A hold that is open while its rule changes is settled under the rule that is then in force, which gives back all units
// that were not used. There are two exceptions: a GCRA rule gives back only what is left of the hold's debt, which a
// larger limit pays off faster; and a rule that follows GCRA does not know when units were charged. Never are more
// units given back than were not used.
func TestHoldsThroughAChangeOfTheRule(t *testing.T) {
	type version struct {
		limit     limit.Limit
		algorithm limit.Algorithm
	}
	clock := newVirtual()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), RememberDenials(0), VirtualClock(clock.now))
	hour, fixed, gcra := limit.PerHour(100), limit.FixedWindow(), limit.GCRA()
	counter := func(k int) limit.Algorithm { return limit.SlidingCounter(k, limit.Strict) }
	for i, c := range []struct {
		before, after version
		all           bool // whether all units come back that were not used
	}{
		{version{hour, limit.SlidingLog()}, version{hour, counter(16)}, true},
		{version{hour, limit.SlidingLog()}, version{hour, fixed}, true},
		{version{hour, limit.SlidingLog()}, version{limit.Per(100, 2*time.Hour), limit.SlidingLog()}, true},
		{version{hour, fixed}, version{hour, counter(16)}, true},
		{version{hour, counter(16)}, version{hour, limit.SlidingLog()}, true},
		{version{hour, counter(16)}, version{limit.PerHour(200), counter(16)}, true},
		{version{hour, gcra}, version{limit.PerHour(200), gcra}, false},
		{version{hour, counter(16)}, version{hour, counter(60)}, true},
		{version{hour, counter(16)}, version{hour, counter(4)}, true},
		{version{hour, counter(16)}, version{limit.Per(100, 2*time.Hour), counter(16)}, true},
		{version{hour, counter(16)}, version{hour, fixed}, true},
		{version{hour, counter(16)}, version{hour, gcra}, true},
		{version{hour, limit.SlidingLog()}, version{hour, gcra}, true},
		{version{hour, gcra}, version{hour, limit.SlidingLog()}, false},
	} {
		const held, used = 50, 10
		all := true
		for j := range 24 { // at many places of an hour, but so that it does not end meanwhile
			clock.micros.Store(time.Date(2026, 9, 21+j, 14, 2*j, 7, 0, time.UTC).UnixMicro())
			name := fmt.Sprintf("r%d-%d", i, j)
			before := newRule(t, l, name, c.before.limit, Use(c.before.algorithm))
			hold := mustHold(t, before, "k", held, time.Hour)
			clock.advance(3 * time.Minute)
			after, err := l.ChangeRule(name, c.after.limit, Use(c.after.algorithm))
			if err != nil {
				t.Fatal(err)
			}
			mustAllow(t, after, "k", 1)
			clock.advance(30 * time.Second)
			mustAllow(t, after, "k", 1)
			free := left(t, after, "k")
			mustSettle(t, hold, used)
			back := left(t, after, "k") - free
			if back > held-used {
				t.Errorf("%v, then %v: %d units came back, of which only %d were not used", c.before, c.after, back, held-used)
			}
			all = all && back == held-used
		}
		if all != c.all {
			t.Errorf("%v, then %v: all units come back that were not used: %v, want %v", c.before, c.after, all, c.all)
		}
	}
}
