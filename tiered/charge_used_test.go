package tiered

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Law 3: used units are charged whether or not they fit. Without Redis, they are charged there
// exactly once when it is back.
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
