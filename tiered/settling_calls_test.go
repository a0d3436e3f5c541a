package tiered

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Law 11: while Redis does not know of all grants, this instance's share must agree to every kind of call, and
// Remaining is at most what the share has left. A call whose caller gives up takes nothing from the share.
func TestLaw11EveryCallSettles(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), redistest.Prefix(), Deadline(5*time.Second), RememberDenials(0))
	r := newRule(t, l, "r", limit.PerHour(100))
	ctx, keys := t.Context(), []string{"allow", "up to", "peek", "each", "all", "given up"}
	for _, key := range keys {
		mustAllow(t, r, key, 80)
	}
	if err := server.Client(t).FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "it is noticed", func() bool { return l.State() == Settling })

	if d := mustAllow(t, r, "allow", 30); d.Allowed {
		t.Errorf("Allow of 30 with 20 left of the share: %+v", d)
	}
	if d := mustAllow(t, r, "allow", 5); !d.Allowed || d.Tier != limit.TierRedis || d.Remaining != 15 {
		t.Errorf("Allow of 5 with 20 left of the share: %+v", d)
	}
	if d, err := r.AllowUpTo(ctx, "up to", 50); err != nil || d.Granted != 20 || d.Remaining != 0 {
		t.Errorf("AllowUpTo: %+v, %v", d, err)
	}
	if d, err := r.Peek(ctx, "peek", 30); err != nil || d.Allowed || d.Remaining != 20 {
		t.Errorf("Peek: %+v, %v", d, err)
	}
	ds, err := l.AllowEach(ctx, Request{Rule: r, Key: "each", Cost: 30}, Request{Rule: r, Key: "each", Cost: 5}, Request{Rule: r, Key: "new", Cost: 30})
	if err != nil || ds[0].Allowed || !ds[1].Allowed || !ds[2].Allowed || ds[2].Remaining != 70 {
		t.Errorf("AllowEach: %+v, %v", ds, err)
	}
	unsettled := newRule(t, l, "unsettled", limit.PerHour(100), OnOutage(Allow)) // such a rule never settles
	ds, err = l.AllowEach(ctx, Request{Rule: unsettled, Key: "k", Cost: 1}, Request{Rule: r, Key: "beside", Cost: 1})
	if err != nil || !ds[0].Allowed || !ds[1].Allowed {
		t.Errorf("AllowEach with rules of which one settles: %+v, %v", ds, err)
	}
	ds, err = l.AllowAll(ctx, Request{Rule: r, Key: "new", Cost: 1}, Request{Rule: r, Key: "all", Cost: 30})
	if err != nil || ds[0].Allowed || !ds[0].HeldBack || !ds[1].Denied() {
		t.Errorf("AllowAll: %+v, %v", ds, err)
	}
	if n := recorded(r, "new"); n != 30 {
		t.Errorf("%d units of a key are on record after a group that was denied, want 30", n)
	}

	server.Pause()
	defer server.Resume()
	hurried, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if d, err := r.AllowN(hurried, "given up", 5); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v, %v", d, err)
	}
	if n := recorded(r, "given up"); n != 80 {
		t.Errorf("%d units are on record after a call that was given up, want 80", n)
	}
}

// Reset also makes a key unused in this instance's own record. Slots stay held, and are reported to Redis again
// at once.
func TestResetInThisProcess(t *testing.T) {
	t.Parallel()
	server, prefix := redistest.Shared(t), redistest.Prefix()
	l, there := newLimiterOn(t, server.Client(t), prefix), newLimiterOn(t, server.Client(t), prefix)
	r := newRule(t, l, "r", limit.PerHour(10))
	mustAllow(t, r, "k", 10)
	if err := r.Reset(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	if n := recorded(r, "k"); n != 0 {
		t.Errorf("%d units are on record after a reset", n)
	}

	ttl := SlotTTL(10 * time.Minute) // slots are renewed only after minutes
	jobs, others := newRule(t, l, "jobs", limit.Concurrent(3), ttl), newRule(t, there, "jobs", limit.Concurrent(3), ttl)
	slot := mustAcquire(t, jobs, "k", 2)
	defer slot.Release()
	if err := jobs.Reset(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "others see the slots again", func() bool { return mustPeek(t, others, "k").Remaining == 1 })
	if !slot.Held() {
		t.Error("the slot is lost")
	}
}

// Under GCRA, a refund in parts gives back as much as a single refund of all units: what is left of the charge's
// debt.
func TestRefundInPartsUnderGCRA(t *testing.T) {
	clock := newVirtual()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), VirtualClock(clock.now))
	r := newRule(t, l, "r", limit.PerMinute(60).WithBurst(60), Use(limit.GCRA()))
	for _, parts := range [][]int64{{10}, {6, 4}, {1, 2, 3, 4}} {
		d := mustAllow(t, r, "k", 10)
		clock.advance(4 * time.Second) // four of the ten have drained
		for _, units := range parts {
			mustRefund(t, r, "k", &d, units)
		}
		if n := left(t, r, "k"); n != 60 {
			t.Errorf("%v: %d units are free, want 60", parts, n)
		}
		clock.advance(time.Minute)
	}
}
