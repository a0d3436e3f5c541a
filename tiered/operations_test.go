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

// inOutage runs a test on a rule twice: while Redis decides, and while Redis is lost.
func inOutage(t *testing.T, lim limit.Limit, test func(t *testing.T, r *Rule)) {
	for name, lost := range map[string]bool{"by Redis": false, "in an outage": true} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			l := newLimiterOn(t, server.Client(t), redistest.Prefix())
			r := newRule(t, l, "r", lim)
			if lost {
				server.Kill()
				l.shard.Breaker.ForceOpen(errors.New("killed"))
			}
			test(t, r)
		})
	}
}

func TestAllowUpToGrantsWhatFits(t *testing.T) {
	inOutage(t, limit.PerHour(10), func(t *testing.T, r *Rule) {
		for _, tc := range []struct{ cost, granted, remaining int64 }{{4, 4, 6}, {100, 6, 0}, {1, 0, 0}} {
			d, err := r.AllowUpTo(context.Background(), "k", tc.cost)
			if err != nil || d.Granted != tc.granted || d.Allowed != (tc.granted > 0) || d.Remaining != tc.remaining {
				t.Errorf("up to %d: %+v, %v", tc.cost, d, err)
			}
			if !d.Allowed && d.RetryAfter <= 0 {
				t.Errorf("denied without a retry after: %+v", d)
			}
		}
	})
}

func TestPeekChargesNothing(t *testing.T) {
	inOutage(t, limit.PerHour(10), func(t *testing.T, r *Rule) {
		mustAllow(t, r, "k", 7)
		for range 5 {
			d, err := r.Peek(context.Background(), "k", 3)
			if err != nil || !d.Allowed || d.Granted != 0 || d.Remaining != 3 {
				t.Errorf("%+v, %v", d, err)
			}
		}
		if d, err := r.Peek(context.Background(), "k", 4); err != nil || d.Allowed || d.RetryAfter <= 0 {
			t.Errorf("%+v, %v", d, err)
		}
		if d := mustAllow(t, r, "k", 3); !d.Allowed {
			t.Errorf("%+v", d)
		}
	})
}

func TestRefundGivesBackAtMostOnce(t *testing.T) {
	inOutage(t, limit.PerHour(10), func(t *testing.T, r *Rule) {
		ctx := context.Background()
		d := mustAllow(t, r, "k", 8)
		if d.Granted != 8 {
			t.Fatalf("%+v", d)
		}
		if denied := mustAllow(t, r, "k", 5); denied.Allowed {
			t.Fatalf("%+v", denied)
		} else if err := r.Refund(ctx, "k", &denied, 1); !errors.Is(err, limit.ErrInvalidRefund) || !strings.Contains(err.Error(), "nothing is left") {
			t.Errorf("of a denial: %v", err)
		}
		if err := r.Refund(ctx, "k", &d, 5); err != nil || d.Granted != 3 {
			t.Fatalf("%+v, %v", d, err)
		}
		// The units are free at once, although a denial of 5 was remembered.
		if peek, err := r.Peek(ctx, "k", 5); err != nil || peek.Remaining != 7 {
			t.Errorf("%+v, %v", peek, err)
		}
		for _, units := range []int64{4, 0, -1} {
			if err := r.Refund(ctx, "k", &d, units); !errors.Is(err, limit.ErrInvalidRefund) {
				t.Errorf("refund of %d of the 3 left: %v", units, err)
			}
		}
		if err := r.Refund(ctx, "k", &d, 3); err != nil {
			t.Error(err)
		}
		if d := mustAllow(t, r, "k", 10); !d.Allowed {
			t.Errorf("all was given back, yet: %+v", d)
		}
	})
}

func TestResetForgetsAKey(t *testing.T) {
	inOutage(t, limit.PerHour(10), func(t *testing.T, r *Rule) {
		mustAllow(t, r, "k", 10)
		if d := mustAllow(t, r, "k", 1); d.Allowed {
			t.Fatalf("%+v", d)
		}
		err := r.Reset(context.Background(), "k")
		if r.limiter.Degraded() {
			if err == nil {
				t.Error("a reset that Redis did not hear of was reported as done")
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if d := mustAllow(t, r, "k", 10); !d.Allowed || d.Remaining != 0 {
			t.Errorf("%+v", d)
		}
	})
}

func TestWait(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), Deadline(5*time.Second))
	r := newRule(t, l, "r", limit.Per(2, 300*time.Millisecond))
	ctx := context.Background()
	started := time.Now()
	for range 5 { // two at once, two a window later, one another window later
		if d, err := r.Wait(ctx, "k", 1); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	if took := time.Since(started); took < 590*time.Millisecond || took > 5*time.Second {
		t.Errorf("5 units at 2 per 300 ms took %v", took)
	}

	slow := newRule(t, l, "slow", limit.PerHour(1))
	mustAllow(t, slow, "k", 1)
	soon, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	started = time.Now()
	if _, err := slow.Wait(soon, "k", 1); !errors.Is(err, limit.ErrWouldExceedDeadline) {
		t.Errorf("error %v", err)
	}
	if took := time.Since(started); took > 10*time.Second {
		t.Errorf("took %v of a minute to say that it cannot be", took)
	}
	cancelled, cancel := context.WithCancel(ctx)
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := slow.Wait(cancelled, "k", 1); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// Law 9: AllowAll charges all or none, on one node, on a Cluster over several slots, and in an outage.
func TestLaw9AllowAllChargesAllOrNone(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, l *Limiter) {
		t.Helper()
		ctx := context.Background()
		tenant := newRule(t, l, "tenant", limit.PerHour(10))
		// GCRA, a unit in 2.6 s. Its burst is the limit, so that what remains in an outage is all that is left of it.
		endpoint := newRule(t, l, "endpoint", limit.Per(1_000_000, 30*24*time.Hour).WithBurst(1_000_000))
		all := func(tenantKey string, cost int64) []limit.Decision {
			t.Helper()
			ds, err := l.AllowAll(ctx, Request{Rule: endpoint, Key: "/search", Cost: 5}, Request{Rule: tenant, Key: tenantKey, Cost: cost})
			if err != nil {
				t.Fatal(err)
			}
			return ds
		}
		before, err := endpoint.Peek(ctx, "/search", 1)
		if err != nil {
			t.Fatal(err)
		}
		if ds := all("a", 8); !ds[0].Allowed || !ds[1].Allowed || ds[1].Remaining != 2 {
			t.Errorf("%+v", ds)
		}
		for range 3 { // the second and third groups are denied from memory
			ds := all("a", 3)
			if ds[0].Allowed || ds[1].Allowed || ds[0].RetryAfter != 0 || ds[1].RetryAfter <= 0 {
				t.Errorf("%+v", ds)
			}
		}
		if ds := all("b", 10); !ds[0].Allowed || !ds[1].Allowed {
			t.Errorf("another tenant: %+v", ds)
		}
		after, err := endpoint.Peek(ctx, "/search", 1)
		if used := before.Remaining - after.Remaining; err != nil || used < 1 || used > 10 {
			t.Errorf("%d units of the endpoint were used, %v; denied requests must not charge it", used, err)
		}
		if _, err := l.AllowAll(ctx, Request{Rule: tenant, Key: "a", Cost: 1}, Request{Rule: tenant, Key: "a", Cost: 1}); !errors.Is(err, limit.ErrInvalidRule) {
			t.Errorf("the same key twice: %v", err)
		}
		if _, err := l.AllowAll(ctx, Request{Rule: nil, Key: "a", Cost: 1}); !errors.Is(err, limit.ErrInvalidRule) {
			t.Errorf("no rule: %v", err)
		}
		if _, err := l.AllowAll(ctx, Request{Rule: tenant, Key: "a", Cost: 11}); !errors.Is(err, limit.ErrCostExceedsLimit) {
			t.Errorf("cost above the limit: %v", err)
		}
	}
	t.Run("one node", func(t *testing.T) {
		check(t, newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), Deadline(5*time.Second)))
	})
	t.Run("cluster", func(t *testing.T) {
		check(t, newLimiterOn(t, redistest.SharedCluster(t).Client(t), redistest.Prefix(), Deadline(5*time.Second)))
	})
	t.Run("outage", func(t *testing.T) {
		server := redistest.Start(t)
		l := newLimiterOn(t, server.Client(t), redistest.Prefix())
		server.Kill()
		l.shard.Breaker.ForceOpen(fmt.Errorf("killed"))
		check(t, l)
	})
}
