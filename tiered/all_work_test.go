package tiered

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Law 7: requests that are charged together write no more to Redis than one trip may. Requests that are charged
// separately take as many trips as they need.
func TestLaw7TheWorkOfAGroupIsBounded(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), Deadline(5*time.Second))
	ring := newRule(t, l, "ring", limit.PerHour(100_000), Use(limit.SlidingLog()))
	set := newRule(t, l, "set", limit.PerHour(5000), Use(limit.SlidingLogZSet()))
	other := newRule(t, l, "other", limit.PerHour(1_000_000), Use(limit.GCRA()))
	requests := func(r *Rule, n int, cost int64) (all []Request) {
		for i := range n {
			all = append(all, Request{Rule: r, Key: fmt.Sprint(cost, " units ", i), Cost: cost})
		}
		return all
	}
	ctx := context.Background()
	for name, test := range map[string]struct {
		requests []Request
		work     string // the number of log units in the error; empty: no error
	}{
		"128 whole logs":      {requests(ring, MaxTogether, 100_000), "12800000"},
		"a unit too much":     {append(requests(ring, 4, 25_000), requests(ring, 1, 1)...), "100001"},
		"sorted sets":         {requests(set, 3, 2000), "120000"},
		"as much as may be":   {requests(ring, 5, 20_000), ""},
		"what counts no unit": {requests(other, 3, 500_000), ""},
	} {
		calls := map[string]func() error{
			"AllowAll": func() error { _, err := l.AllowAll(ctx, test.requests...); return err },
			"HoldAll":  func() error { _, _, err := l.HoldAll(ctx, time.Minute, test.requests...); return err },
		}
		for call, f := range calls {
			err := f()
			if test.work == "" && err != nil || test.work != "" && (!errors.Is(err, limit.ErrInvalidCost) || !strings.Contains(err.Error(), "write "+test.work+" log units")) {
				t.Errorf("%s of %s: error %v", call, name, err)
			}
		}
	}
	before := tripsOf(l)
	decisions, err := l.AllowEach(ctx, append(requests(ring, 3, 60_000), requests(other, 2, 1)...)...)
	if err != nil || tripsOf(l)-before != 3 {
		t.Fatalf("%d trips, error %v", tripsOf(l)-before, err)
	}
	for i, d := range decisions {
		if !d.Allowed || d.Tier != limit.TierRedis {
			t.Errorf("request %d: %+v", i, d)
		}
	}
}
