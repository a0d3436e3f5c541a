package tiered

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Laws 6 and 11: a caller whose context leaves less time than an answer takes gets the context's error. The
// outage policy does not decide, and the caller's deadline does not affect the limits of others.
func TestLaws6And11ACallersOwnDeadlineMovesNoLimit(t *testing.T) {
	t.Parallel()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), Deadline(5*time.Second))
	const quota = 100
	generous := newRule(t, l, "generous", limit.PerHour(quota), OnOutage(Allow))
	innocent := newRule(t, l, "innocent", limit.PerHour(quota))
	var allowed, ended atomic.Int64
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			for j := range 400 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(20+(17*i+j)%300)*time.Microsecond)
				d, err := generous.Allow(ctx, fmt.Sprint(j%2)) // so many calls at once that some wait for a trip
				cancel()
				switch {
				case err == nil && d.Allowed:
					allowed.Add(1)
				case errors.Is(err, context.DeadlineExceeded):
					ended.Add(1)
				case err != nil:
					t.Error(err)
				}
				if err == nil && d.Degraded() {
					t.Errorf("decided by policy: %+v", d)
				}
			}
		})
	}
	granted := 0
	for range quota {
		if d := mustAllow(t, innocent, "k", 1); d.Allowed && d.Tier == limit.TierRedis {
			granted++
		}
		if s := l.State(); s != Healthy {
			t.Fatalf("the limiter is %v", s)
		}
	}
	callers.Wait()
	if n := allowed.Load(); n > 2*quota {
		t.Errorf("%d of two keys' %d units were granted", n, 2*quota)
	}
	if granted != quota {
		t.Errorf("an innocent key got %d of its %d units", granted, quota)
	}
	if s := l.State(); s != Healthy {
		t.Errorf("the limiter is %v", s)
	}
	t.Logf("%d calls had too little time, %d were granted", ended.Load(), allowed.Load())
	if ended.Load() < 50 {
		t.Error("too few calls had too little time")
	}
}

// Law 7: if Redis hangs, a caller does not wait longer than its context allows. A context that ends is no sign of
// an outage.
func TestLaw7ACallersOwnDeadlineEnds(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), redistest.Prefix(), Deadline(10*time.Second))
	r := newRule(t, l, "r", limit.PerHour(100))
	mustAllow(t, r, "k", 1)
	server.Pause()
	t.Cleanup(server.Resume)
	for _, ask := range []func(context.Context) error{
		func(ctx context.Context) error { _, err := r.Allow(ctx, "k"); return err },
		func(ctx context.Context) error { _, err := r.Wait(ctx, "k", 1); return err },
		func(ctx context.Context) error {
			_, err := l.AllowAll(ctx, Request{Rule: r, Key: "k", Cost: 1}, Request{Rule: r, Key: "other", Cost: 1})
			return err
		},
	} {
		started := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := ask(ctx)
		cancel()
		if took := time.Since(started); !errors.Is(err, context.DeadlineExceeded) || took < 49*time.Millisecond || took > 7*time.Second {
			t.Errorf("%v after %v", err, took)
		}
	}
	if l.Degraded() {
		t.Error("Redis counts as lost because callers were in a hurry")
	}
}
