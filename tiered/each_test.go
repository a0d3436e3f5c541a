package tiered

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// AllowEach decides like AllowN and Peek called one after the other, under every algorithm, even if the same key
// occurs several times.
func TestAllowEachIsOneAfterTheOther(t *testing.T) {
	clock := newVirtual()
	client := redistest.Shared(t).Client(t)
	together := newLimiterOn(t, client, redistest.Prefix(), VirtualClock(clock.now), RememberDenials(0))
	alone := newLimiterOn(t, client, redistest.Prefix(), VirtualClock(clock.now), RememberDenials(0))
	random := rand.New(rand.NewPCG(3, 4))
	algorithms := limit.Algorithms()
	rules := func(l *Limiter) (rules []*Rule) {
		for i, a := range algorithms {
			rules = append(rules, newRule(t, l, fmt.Sprint("r", i), limit.PerMinute(12).WithBurst(12), Use(a)))
		}
		return rules
	}
	each, single := rules(together), rules(alone)
	for range 200 {
		clock.advance(time.Duration(random.Int64N(int64(2 * time.Second))))
		var requests []Request
		var want []limit.Decision
		for range 1 + random.IntN(5) {
			rule, key, cost := random.IntN(len(algorithms)), fmt.Sprint(random.IntN(2)), random.Int64N(4)
			requests = append(requests, Request{Rule: each[rule], Key: key, Cost: cost})
			var d limit.Decision
			if cost == 0 {
				var err error
				if d, err = single[rule].Peek(context.Background(), key, 1); err != nil {
					t.Fatal(err)
				}
			} else {
				d = mustAllow(t, single[rule], key, cost)
			}
			want = append(want, d)
		}
		got, err := together.AllowEach(context.Background(), requests...)
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("%d of %+v:\n%+v, alone\n%+v", i, requests, got[i], want[i])
			}
		}
	}
}

// AllowEach takes one trip, and returns errors for invalid requests.
func TestAllowEachTakesOneTrip(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), Deadline(5*time.Second))
	r := newRule(t, l, "r", limit.PerDay(100))
	var requests []Request
	for i := range MaxTogether {
		requests = append(requests, Request{Rule: r, Key: fmt.Sprint(i), Cost: 1})
	}
	before := tripsOf(l)
	if ds, err := l.AllowEach(context.Background(), requests...); err != nil || len(ds) != MaxTogether {
		t.Fatalf("%d, %v", len(ds), err)
	}
	if n := tripsOf(l) - before; n != 1 {
		t.Errorf("%d trips, want 1", n)
	}
	if ds, err := l.AllowEach(context.Background()); err != nil || len(ds) != 0 {
		t.Errorf("%v, %v", ds, err)
	}
	for want, bad := range map[error][]Request{
		limit.ErrInvalidRule:      append(requests, requests[0]),
		limit.ErrInvalidKey:       {{Rule: r, Key: "", Cost: 1}},
		limit.ErrInvalidCost:      {{Rule: r, Key: "k", Cost: -1}},
		limit.ErrCostExceedsLimit: {{Rule: r, Key: "k", Cost: 101}},
	} {
		if _, err := l.AllowEach(context.Background(), bad...); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	if _, err := l.AllowEach(context.Background(), Request{Rule: nil, Key: "k", Cost: 1}); !errors.Is(err, limit.ErrInvalidRule) {
		t.Error(err)
	}
}

// tripsOf returns the number of trips to Redis that a limiter has made.
func tripsOf(l *Limiter) uint64 { return l.Stats().Trips.Seconds.Count() }

// On a Cluster, each slot is asked separately, and a denial in one slot does not affect the others.
func TestAllowEachOnCluster(t *testing.T) {
	t.Parallel()
	l := newLimiterOn(t, redistest.SharedCluster(t).Client(t), redistest.Prefix(), Deadline(5*time.Second))
	r := newRule(t, l, "r", limit.PerDay(3), Use(limit.SlidingLog()), DenialLife(0))
	full := newRule(t, l, "full", limit.PerDay(1), Use(limit.SlidingLog()))
	for range 2 {
		mustAllow(t, full, "full", 1)
	}
	keys := []string{"a", "b", "c", "a"}
	for round := range 4 {
		var requests []Request
		for _, key := range keys {
			requests = append(requests, Request{Rule: r, Key: key, Cost: 1})
		}
		ds, err := l.AllowEach(context.Background(), append([]Request{{Rule: full, Key: "full", Cost: 1}}, requests...)...)
		if err != nil {
			t.Fatal(err)
		}
		if d := ds[0]; d.Allowed || d.Limit != 1 {
			t.Errorf("what is known to be denied: %+v", d)
		}
		for i, d := range ds[1:] {
			want := round < 3
			if keys[i] == "a" {
				want = 2*round+i/3 < 3
			}
			if d.Allowed != want {
				t.Errorf("round %d, key %s: %+v", round, keys[i], d)
			}
		}
	}
}

// A call that ends with an error is counted for each of its requests, in AllowEach as in AllowAll.
func TestMistakesTogetherAreCounted(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	r, slots := newRule(t, l, "r", limit.PerHour(10)), newRule(t, l, "slots", limit.Concurrent(1))
	good := Request{Rule: r, Key: "k", Cost: 1}
	want := uint64(0)
	for _, bad := range []Request{{Rule: r, Cost: 1}, {Rule: r, Key: "k", Cost: 11}, {Rule: r, Key: "j", Cost: 1, Hold: time.Second}, {Rule: slots, Key: "k", Cost: 1}} {
		for name, call := range map[string]func(context.Context, ...Request) ([]limit.Decision, error){"AllowAll": l.AllowAll, "AllowEach": l.AllowEach} {
			if _, err := call(context.Background(), good, bad); err == nil {
				t.Errorf("%s of %+v: no error", name, bad)
			}
			if want++; bad.Rule == r {
				want++
			}
			if got := ruleStats(l, "r").Errors; got != (ErrorStats{Invalid: want}) {
				t.Errorf("after %s of %+v: errors are counted as %+v, want %d invalid ones", name, bad, got, want)
			}
		}
	}
	if d := mustAllow(t, r, "k", 10); !d.Allowed {
		t.Errorf("something was charged: %+v", d)
	}
}
