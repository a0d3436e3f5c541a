package tiered

import (
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// The units of a hold that nobody settles are given back by the first decision after its end, even if nobody asks
// about the key for hours. So the hold's record in Redis must not expire ten minutes after its end.
func TestLaw8HoldsAreGivenBackToAKeyThatWasIdle(t *testing.T) {
	type idle struct {
		l    limit.Limit
		a    limit.Algorithm
		time time.Duration
	}
	cases := []idle{
		{limit.PerCalendar(100, limit.CalendarMonth, time.UTC), limit.FixedWindow(), 20 * 24 * time.Hour},
		{limit.PerHour(10).WithBurst(100), limit.GCRA(), 9 * time.Hour}, // the burst takes ten hours to pay off
	}
	for _, a := range limit.Algorithms() {
		cases = append(cases, idle{limit.PerDay(100), a, 11 * time.Minute}, idle{limit.PerDay(100), a, 13 * time.Hour})
	}
	for _, c := range cases {
		client, server := redistest.Embedded(t)
		now := time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
		server.SetTime(now)
		l := newLimiterOn(t, client, redistest.Prefix())
		r := newRule(t, l, "r", c.l, Use(c.a), Unsettled(GiveBack), DenialLife(0))
		// The second hold outlives the end of the first one, at which the record is written again.
		for i, life := range []time.Duration{time.Second, time.Minute} {
			hold, d, err := r.Hold(t.Context(), "k", 50, life)
			if err != nil || hold == nil {
				t.Fatal(i, d, err)
			}
		}
		pass := func(d time.Duration) {
			server.FastForward(d)
			now = now.Add(d)
			server.SetTime(now)
		}
		pass(2 * time.Second)
		if d := mustAllow(t, r, "k", 1); !d.Allowed {
			t.Errorf("%v, %v: the first hold was not given back: %+v", c.l, c.a, d)
		}
		pass(c.time)
		// GCRA gives back what is left of a hold's debt, which is a little less.
		if d := mustAllow(t, r, "k", 90); !d.Allowed {
			t.Errorf("%v, %v: the units are still charged %v after the end of their hold: %+v", c.l, c.a, c.time, d)
		}
	}
}
