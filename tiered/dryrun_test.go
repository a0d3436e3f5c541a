package tiered

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
)

// A rule on a dry run decides and charges as it would otherwise, call by call, but lets everything through, even
// in an outage.
func TestDryRunDecidesAsInEarnest(t *testing.T) {
	inOutage(t, limit.PerHour(10), func(t *testing.T, r *Rule) {
		dry := newRule(t, r.limiter, "dry", limit.PerHour(10), DryRun())
		ctx := context.Background()
		for name, call := range map[string]func(*Rule) (limit.Decision, error){
			"AllowN":    func(r *Rule) (limit.Decision, error) { return r.AllowN(ctx, "a", 4) },
			"AllowUpTo": func(r *Rule) (limit.Decision, error) { return r.AllowUpTo(ctx, "u", 4) },
			"Peek":      func(r *Rule) (limit.Decision, error) { return r.Peek(ctx, "a", 4) },
			"AllowAll": func(r *Rule) (limit.Decision, error) {
				ds, err := r.limiter.AllowAll(ctx, Request{Rule: r, Key: "all", Cost: 4})
				return ds[0], err
			},
		} {
			for range 4 { // the last two are denied
				want, err := call(r)
				if err != nil {
					t.Fatal(err)
				}
				got, err := call(dry)
				if err != nil || !got.Allowed || !got.DryRun || got.WouldDeny == want.Allowed {
					t.Errorf("%s: %+v, %v; in earnest %+v", name, got, err, want)
				}
				if got.Granted != want.Granted || got.Remaining != want.Remaining || (got.RetryAfter > 0) != (want.RetryAfter > 0) {
					t.Errorf("%s: %+v; in earnest %+v", name, got, want)
				}
			}
		}
		// A caller that would have to wait for units does not wait.
		if d, err := dry.Wait(ctx, "a", 10); err != nil || !d.WouldDeny {
			t.Errorf("%+v, %v", d, err)
		}
	})
}

// On a dry run, a call that would return an error is allowed instead, uncharged, and counted.
func TestDryRunHasNoErrors(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	dry := newRule(t, l, "dry", limit.PerHour(10), DryRun())
	ended, end := context.WithCancel(context.Background())
	end()
	for _, call := range []struct {
		ctx  context.Context
		key  string
		cost int64
	}{{context.Background(), "", 1}, {context.Background(), "k", 0}, {context.Background(), "k", 11}, {ended, "k", 1}} {
		d, err := dry.AllowN(call.ctx, call.key, call.cost)
		if err != nil || !d.Allowed || !d.DryRun || d.WouldDeny || d.Granted != 0 {
			t.Errorf("%q, %d: %+v, %v", call.key, call.cost, d, err)
		}
		// Refunding an uncharged decision is no error, because the caller was let through without an error.
		if err := dry.Refund(context.Background(), "k", &d, 1); err != nil {
			t.Error(err)
		}
	}
	if got, want := ruleStats(l, "dry").Errors, (ErrorStats{Invalid: 3, Cancelled: 1}); got != want {
		t.Errorf("errors are counted as %+v, want %+v", got, want)
	}
	// If other rules are asked in the same call, their errors are still returned.
	real := newRule(t, l, "real", limit.PerHour(10))
	good, bad := Request{Rule: real, Key: "k", Cost: 1}, Request{Rule: dry, Key: "k", Cost: 11}
	ds, err := l.AllowEach(context.Background(), bad, good, Request{Rule: dry})
	if err != nil || !ds[0].DryRun || !ds[1].Allowed || ds[1].Granted != 1 {
		t.Fatalf("%+v, %v", ds, err)
	}
	for _, d := range []limit.Decision{ds[0], ds[2]} {
		if !d.Allowed || !d.DryRun || d.WouldDeny || d.Granted != 0 {
			t.Errorf("beside another: %+v", d)
		}
	}
	if ds, err := l.AllowEach(ended, Request{Rule: dry, Key: "k", Cost: 1}); err != nil || !ds[0].Allowed {
		t.Errorf("its context has ended: %+v, %v", ds, err)
	}
	if _, err := l.AllowEach(context.Background(), bad, Request{Rule: real, Key: "k", Cost: 11}); !errors.Is(err, limit.ErrCostExceedsLimit) {
		t.Errorf("another's mistake: %v", err)
	}
	for range 2 { // the refund gives back what was charged
		d := mustAllow(t, dry, "k", 10)
		if d.WouldDeny {
			t.Errorf("something was charged: %+v", d)
		}
		if err := dry.Refund(context.Background(), "k", &d, 10); err != nil {
			t.Error(err)
		}
	}
}

// fails is a Decider whose calls for several requests fail.
type fails struct {
	outage.Decider
	err error
}

func (f fails) DecideAll(context.Context, []remote.Entry, time.Duration) ([]remote.Reply, error) {
	return nil, f.err
}

// An AllowEach that fails under way returns no error if all of its rules are on a dry run.
func TestDryRunsTogetherHaveNoErrors(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	dry, real := newRule(t, l, "dry", limit.PerHour(10), DryRun()), newRule(t, l, "real", limit.PerHour(10))
	l.shard.Decider = fails{l.shard.Decider, context.Canceled}
	tried := Request{Rule: dry, Key: "k", Cost: 1}
	if ds, err := l.AllowEach(t.Context(), tried, tried); err != nil || !ds[0].Allowed || !ds[1].Allowed || !ds[1].DryRun {
		t.Errorf("%+v, %v", ds, err)
	}
	if _, err := l.AllowEach(t.Context(), tried, Request{Rule: real, Key: "k", Cost: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("beside a rule in earnest: %v", err)
	}
}

// On a dry run, nobody waits for a slot.
func TestDryRunsDoNotWaitForSlots(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	dry := newRule(t, l, "dry", limit.Concurrent(1), DryRun())
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range 2 { // the second slot does not fit
		slot, err := dry.AcquireWait(ctx, "k", 1)
		if err != nil || !slot.Held() || ctx.Err() != nil {
			t.Fatalf("%v, %v", slot.Held(), err)
		}
		defer slot.Release()
	}
}

// Decisions of dry runs are counted separately from those of other rules.
func TestDryRunIsCountedApart(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), RememberDenials(0))
	dry := newRule(t, l, "dry", limit.PerHour(2), DryRun())
	for range 5 {
		mustAllow(t, dry, "k", 1)
	}
	got := ruleStats(l, "dry")
	if redis := got.DryRun[limit.TierRedis]; redis != (TierStats{Tier: limit.TierRedis, Allowed: 2, Denied: 3}) {
		t.Errorf("counted %+v", redis)
	}
	if got.Decisions != nil {
		t.Errorf("counted as decisions of a rule in earnest: %+v", got.Decisions)
	}
}

// Rules on a dry run change nothing for the other rules of a group, whatever their limits and whichever call is
// used. They are charged only for requests that the other rules granted.
func TestDryRunsChangeNothingForOthers(t *testing.T) {
	server := redistest.Shared(t)
	clock := newVirtual()
	l := newLimiterOn(t, server.Client(t), redistest.Prefix(), VirtualClock(clock.now))
	a, b := newRule(t, l, "a", limit.PerMinute(8)), newRule(t, l, "b", limit.PerMinute(5))
	// The same two rules without the dry run, and its rule in earnest.
	alone := newLimiterOn(t, server.Client(t), redistest.Prefix(), VirtualClock(clock.now))
	a2, b2 := newRule(t, alone, "a", limit.PerMinute(8)), newRule(t, alone, "b", limit.PerMinute(5))
	dry, earnest := newRule(t, l, "dry", limit.PerMinute(6), DryRun()), newRule(t, alone, "dry", limit.PerMinute(6))
	history := 0
	rapid.Check(t, func(rt *rapid.T) {
		history++
		key := fmt.Sprint("key ", history)
		ctx := context.Background()
		for range rapid.IntRange(1, 12).Draw(rt, "groups") {
			clock.advance(time.Duration(rapid.IntRange(0, 20_000).Draw(rt, "ms")) * time.Millisecond)
			cost := func(name string) int64 {
				return rapid.SampledFrom([]int64{1, 2, 3, 1, 2, 3, 1, 2, 3, 9}).Draw(rt, name)
			} // 9 is above the limits
			qa, qb, qd := Request{Rule: a, Key: key, Cost: cost("a")}, Request{Rule: b, Key: key, Cost: cost("b")}, Request{Rule: dry, Key: key, Cost: rapid.Int64Range(-1, 8).Draw(rt, "dry")}
			all := l.AllowAll
			if rapid.Bool().Draw(rt, "take") {
				all = func(ctx context.Context, requests ...Request) ([]limit.Decision, error) {
					_, ds, err := l.TakeAll(ctx, requests...)
					return ds, err
				}
			}
			got, err := all(ctx, qa, qd, qb)
			want, refused := alone.AllowAll(ctx, Request{Rule: a2, Key: key, Cost: qa.Cost}, Request{Rule: b2, Key: key, Cost: qb.Cost})
			if fmt.Sprint(err) != fmt.Sprint(refused) {
				rt.Fatalf("beside a dry run %v, alone %v", err, refused)
			}
			if err != nil {
				continue // the dry run is not asked
			}
			for i, d := range []limit.Decision{got[0], got[2]} {
				want[i].ChargedAt = d.ChargedAt
				if d != want[i] {
					rt.Errorf("beside a dry run %+v, alone %+v", d, want[i])
				}
			}
			switch d := got[1]; {
			case !got[0].Allowed:
				if d.Allowed || d.WouldDeny || d.Granted != 0 || d.RetryAfter != 0 || !d.DryRun || d.Tier != limit.TierLocal {
					rt.Errorf("of a denied group: %+v", d)
				}
			default:
				would, err := earnest.AllowN(ctx, key, qd.Cost)
				if !d.Allowed || d.WouldDeny != (err == nil && !would.Allowed) || d.Granted != would.Granted {
					rt.Errorf("%+v; in earnest %+v, %v", d, would, err)
				}
			}
		}
	})
}

// Law 7: if Redis is silent, a group with dry runs takes less than two deadlines, and the breaker opens as usual.
func TestLaw7DryRunsKeepTheDeadline(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const deadline = time.Second
	l := newLimiterOn(t, server.Client(t), redistest.Prefix(), Deadline(deadline))
	r, dry := newRule(t, l, "r", limit.PerHour(1000)), newRule(t, l, "dry", limit.PerHour(1000), DryRun())
	server.Pause()
	defer server.Resume()
	began := time.Now()
	ds, err := l.AllowAll(context.Background(), Request{Rule: r, Key: "k", Cost: 1}, Request{Rule: dry, Key: "k", Cost: 1})
	if took := time.Since(began); took >= 2*deadline {
		t.Errorf("took %v with a deadline of %v", took, deadline)
	}
	if err != nil || !ds[0].Allowed || !ds[0].Degraded() || !ds[1].Allowed || !ds[1].DryRun || !ds[1].Degraded() {
		t.Errorf("%+v, %v", ds, err)
	}
	if got := ruleStats(l, "dry"); got.Errors.Total() != 0 || got.DryRun[ds[1].Tier].Allowed != 1 {
		t.Errorf("the dry run is counted as %+v, want one decision and no error", got)
	}
	redistest.Eventually(t, "the breaker opens", func() bool {
		_, err := l.AllowAll(context.Background(), Request{Rule: r, Key: "k", Cost: 1}, Request{Rule: dry, Key: "k", Cost: 1})
		return err == nil && l.Degraded()
	})
}

// Law 7: a group with many dry runs, which do not count toward MaxTogether, does not start a goroutine for each.
func TestLaw7ManyDryRunsAreAskedInTurn(t *testing.T) {
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), redistest.Prefix(), Deadline(time.Second))
	dry := newRule(t, l, "dry", limit.PerHour(1000), DryRun())
	server.Pause()
	defer server.Resume()
	requests := make([]Request, 20*MaxTogether)
	for i := range requests {
		requests[i] = Request{Rule: dry, Key: fmt.Sprint("k", i), Cost: 1}
	}
	before, most := runtime.NumGoroutine(), 0
	done := make(chan error, 1)
	go func() { _, err := l.AllowAll(context.Background(), requests...); done <- err }()
	for {
		select {
		case err := <-done:
			if more := most - before; err != nil || more > 2*MaxTogether {
				t.Errorf("%v, with %d goroutines more", err, more)
			}
			return
		case <-time.After(time.Millisecond):
			most = max(most, runtime.NumGoroutine())
		}
	}
}

// Copies of a rule that WithLimit makes are on a dry run, too.
func TestDryRunOfPlans(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	gold, err := newRule(t, l, "dry", limit.PerHour(1), DryRun()).WithLimit(limit.PerHour(2))
	if err != nil || !gold.IsDryRun() {
		t.Fatalf("%v, %v", gold, err)
	}
	mustAllow(t, gold, "k", 2)
	if d := mustAllow(t, gold, "k", 1); !d.Allowed || !d.WouldDeny {
		t.Errorf("%+v", d)
	}
	earnest, err := l.ChangeRule("dry", limit.PerHour(2))
	if err != nil || earnest.IsDryRun() {
		t.Fatalf("%v, %v", earnest, err)
	}
	if d := mustAllow(t, earnest, "k", 1); d.Allowed || d.DryRun {
		t.Errorf("in earnest, on the same counts: %+v", d)
	}
}
