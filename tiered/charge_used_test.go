package tiered

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
)

// Law 3: used units are charged whether or not they fit. If Redis is lost, they are charged exactly once when it
// is back.
func TestLaw3WhatWasUsedIsCharged(t *testing.T) {
	t.Parallel()
	ctx, server, prefix := context.Background(), redistest.Start(t), redistest.Prefix()
	l := newLimiterOn(t, server.Client(t), prefix, Deadline(5*time.Second), RememberDenials(0))
	r := newRule(t, l, "r", limit.PerHour(100), Use(limit.SlidingLog()))
	before := mustAllow(t, r, "k", 80)
	charge := func(units int64) {
		t.Helper()
		if err := r.ChargeUsed(ctx, "k", units); err != nil {
			t.Fatal(err)
		}
	}
	charge(60)
	if err := r.Refund(ctx, "k", &before, 80); err != nil {
		t.Fatal(err)
	}
	if free := left(t, r, "k"); free != 40 {
		t.Errorf("%d units are free with 60 used", free)
	}
	server.Pause()
	l.shard.Breaker.ForceOpen(errors.New("lost"))
	charge(15)
	if units, _ := l.ledger.Waiting(); units != 15 {
		t.Errorf("%d units wait for Redis, want 15", units)
	}
	server.Resume()
	redistest.Eventually(t, "Redis is back and knows", func() bool { return !l.shard.Owes() })
	if free := peekFrom(t, server, prefix, r, "k"); free != 25 {
		t.Errorf("%d units are free with 75 used", free)
	}
	for _, units := range []int64{0, -1, 1 << 60} {
		if err := r.ChargeUsed(ctx, "k", units); !errors.Is(err, limit.ErrInvalidCost) {
			t.Errorf("%d units: %v", units, err)
		}
	}
}

// answersAreLost is a Decider whose answers to Decide are lost.
type answersAreLost struct{ outage.Decider }

func (d answersAreLost) Decide(ctx context.Context, e remote.Entry) (remote.Reply, error) {
	_, _ = d.Decider.Decide(ctx, e)
	return remote.Reply{}, remote.ErrNoAnswer
}

// Law 3: used units that Redis may have charged are not charged again later.
func TestLaw3WhatWasUsedIsNotChargedTwiceIfTheAnswerIsLost(t *testing.T) {
	t.Parallel()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), Deadline(5*time.Second))
	r := newRule(t, l, "r", limit.PerHour(100), Use(limit.SlidingLog()))
	l.shard.Decider = answersAreLost{l.shard.Decider}
	if err := r.ChargeUsed(t.Context(), "k", 30); err != nil {
		t.Fatal(err)
	}
	if waiting, _ := l.ledger.Waiting(); waiting != 0 || recorded(r, "k") != 30 {
		t.Errorf("%d units wait for Redis, and %d are on record; want 0 and 30", waiting, recorded(r, "k"))
	}
	if free := left(t, r, "k"); free != 70 {
		t.Errorf("%d units are free with 30 used", free)
	}
}

// Law 3: used units are charged once, even if Redis has just lost its data and the lost units of the key have not
// been charged again yet.
func TestLaw3WhatWasUsedAfterALossIsChargedOnce(t *testing.T) {
	t.Parallel()
	server, prefix := redistest.Start(t), redistest.Prefix()
	l := newLimiterOn(t, server.Client(t), prefix, Deadline(5*time.Second), RememberDenials(0))
	r := newRule(t, l, "r", limit.PerHour(200), Use(limit.SlidingLog()))
	mustAllow(t, r, "k", 10)
	if err := server.Client(t).FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "it is noticed", func() bool { return l.State() == Settling })
	if err := r.ChargeUsed(t.Context(), "k", 20); err != nil {
		t.Fatal(err)
	}
	mustAllow(t, r, "k", 1)
	redistest.Eventually(t, "what was lost is charged", func() bool { return !l.shard.Owes() && l.Stats().ChargedBackUnits > 0 })
	if free := peekFrom(t, server, prefix, r, "k"); free != 200-31 {
		t.Errorf("%d units are free with 31 used, want %d", free, 200-31)
	}
}

// Debt that an estimate counts only in part, because it has nearly left the window, leaves room for the debt of
// units that were used since. The state stays readable even with the largest limit.
func TestChargeUsedAfterDebtThatHasNearlyLeft(t *testing.T) {
	for _, quota := range []int64{10, limit.MaxQuota} {
		for _, k := range []int{1, 16} {
			clock := &virtual{}
			clock.micros.Store(1_700_000_040_000_000) // the start of a minute
			l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), VirtualClock(clock.now), RememberDenials(0))
			r := l.MustRule("r", limit.PerMinute(quota), Use(limit.SlidingCounter(k, limit.Estimate)))
			charge := func(units int64) {
				t.Helper()
				if err := r.ChargeUsed(t.Context(), "k", units); err != nil {
					t.Fatal(err)
				}
			}
			// After the clock is advanced, 20 % of four times the limit still count.
			for range 4 {
				charge(quota)
			}
			clock.advance(time.Minute + time.Minute/time.Duration(k)*4/5)
			peek := func(want int64) {
				t.Helper()
				d, err := r.Peek(t.Context(), "k", 1)
				if err != nil || d.Remaining != want || d.Tier != limit.TierRedis {
					t.Errorf("k=%d: %+v, %v; want %d remaining", k, d, err, want)
				}
			}
			counted := (4*quota + 4) / 5
			peek(quota - counted)
			charge(1)
			peek(quota - counted - 1)
			if d, err := r.AllowN(t.Context(), "k", quota-counted-1); err != nil || !d.Allowed || d.Tier != limit.TierRedis {
				t.Errorf("k=%d: %+v, %v", k, d, err)
			}
			for range 4 {
				charge(quota)
			}
			peek(0)
			clock.advance(2 * time.Minute)
			peek(quota)
		}
	}
}

// Law 3: used units are charged, or the caller gets an error, also if the limiter is closed while the call begins.
func TestLaw3WhatWasUsedBesideCloseIsNotLost(t *testing.T) {
	t.Parallel()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	r := newRule(t, l, "r", limit.PerHour(100), Use(limit.SlidingLog()))
	l.shards.Close() // Close has come so far, and the call has already found the limiter open
	if err := r.ChargeUsed(t.Context(), "k", 1); !errors.Is(err, limit.ErrClosed) || recorded(r, "k") != 0 {
		t.Errorf("%v, and %d units are on record", err, recorded(r, "k"))
	}
}
