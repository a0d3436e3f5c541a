package tiered

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

func mustHold(t testing.TB, r *Rule, key string, units int64, life time.Duration) *Hold {
	t.Helper()
	h, d, err := r.Hold(context.Background(), key, units, life)
	if err != nil || h == nil || !d.Allowed || h.Units() != units {
		t.Fatalf("holding %d units: %+v, %+v, %v", units, h, d, err)
	}
	return h
}

func mustSettle(t testing.TB, h *Hold, units int64) {
	t.Helper()
	if err := h.Settle(context.Background(), units); err != nil {
		t.Fatal(err)
	}
}

// A hold is charged like any cost. When it is settled, exactly the used units stay charged, whether they are
// fewer or more.
func TestHoldsAreSettled(t *testing.T) {
	ctx, clock := context.Background(), newVirtual()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), VirtualClock(clock.now))
	for _, a := range limit.Algorithms() {
		r := newRule(t, l, a.Name(), limit.PerHour(100).WithBurst(100), Use(a))
		check := func(what string, want int64) {
			t.Helper()
			if got := left(t, r, "k"); got != want {
				t.Errorf("%v: %d units are free %s, want %d", a, got, what, want)
			}
		}
		first := mustHold(t, r, "k", 60, time.Minute)
		check("with 60 held", 40)
		if h, d, err := r.Hold(ctx, "k", 41, time.Minute); h != nil || d.Allowed || d.RetryAfter <= 0 || err != nil {
			t.Errorf("%v: one unit too many: %+v, %+v, %v", a, h, d, err)
		}
		second, d, err := r.HoldUpTo(ctx, "k", 500, time.Minute)
		if err != nil || second == nil || second.Units() != 40 || d.Granted != 40 {
			t.Fatalf("%v: holding what fits: %+v, %+v, %v", a, second, d, err)
		}
		if c := l.Stats().Holds; c.Open != 2 || c.Units != 100 {
			t.Errorf("%v: with two holds of 100 units: %+v", a, c)
		}
		mustSettle(t, first, 20)
		check("once 20 of 60 were used", 40)
		if err := first.Settle(ctx, 30); !errors.Is(err, limit.ErrHoldEnded) {
			t.Errorf("%v: settled twice: %v", a, err)
		}
		if err := first.Cancel(ctx); err != nil {
			t.Errorf("%v: cancelled after it was settled: %v", a, err)
		}
		check("after settling twice", 40)
		mustSettle(t, second, 95)
		check("once 95 of 40 were used", 0)
		if h, d, err := r.Hold(ctx, "k", 1, time.Minute); h != nil || d.Allowed || err != nil {
			t.Errorf("%v: a unit was granted on top of 115: %+v, %v", a, d, err)
		} else if err := h.Cancel(ctx); err != nil {
			t.Errorf("%v: the hold of a denial was cancelled: %v", a, err)
		}
		third := mustHold(t, r, "other", 100, time.Minute)
		if err := third.Cancel(ctx); err != nil {
			t.Fatal(err)
		}
		if got := left(t, r, "other"); got != 100 {
			t.Errorf("%v: %d units are free once 100 were cancelled", a, got)
		}
		if err := third.Settle(ctx, 5); !errors.Is(err, limit.ErrHoldEnded) {
			t.Errorf("%v: settled after it was cancelled: %v", a, err)
		}
		if err := third.Extend(ctx, time.Minute); !errors.Is(err, limit.ErrHoldEnded) {
			t.Errorf("%v: extended after it was cancelled: %v", a, err)
		}
	}
	if c := l.Stats().Holds; c.Open != 0 || c.Units != 0 || c.Unsettled != 0 || c.Lost != 0 || c.Settled == 0 {
		t.Errorf("%+v", c)
	}
}

// Law 3: what was not used comes back also if units were refunded meanwhile. A log refunds the oldest units, which
// may be those of a hold; the units of the refunded charge then count in their place.
func TestLaw3ARefundTakesNothingFromAHold(t *testing.T) {
	ctx, clock := context.Background(), newVirtual()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), VirtualClock(clock.now))
	for name, a := range map[string]limit.Algorithm{
		"log": limit.SlidingLog(), "zset": limit.SlidingLogZSet(),
		"counter": limit.SlidingCounter(16, limit.Strict), "fixed": limit.FixedWindow(),
	} {
		r := newRule(t, l, name, limit.PerHour(100), Use(a), Unsettled(GiveBack))
		check := func(key, what string, want int64) {
			t.Helper()
			if got := left(t, r, key); got != want {
				t.Errorf("%v: %d units are free %s, want %d", a, got, what, want)
			}
		}
		refunded := func(key string, units int64) {
			t.Helper()
			clock.advance(time.Second)
			d, err := r.AllowN(ctx, key, units)
			if err == nil {
				err = r.Refund(ctx, key, &d, units)
			}
			if err != nil {
				t.Fatal(err)
			}
		}

		h := mustHold(t, r, "settled", 30, time.Minute)
		refunded("settled", 20)
		check("settled", "with 30 held", 70)
		mustSettle(t, h, 5)
		check("settled", "once 5 of 30 were used", 95)

		h = mustHold(t, r, "given back", 30, 10*time.Second)
		refunded("given back", 20)
		clock.advance(20 * time.Second)
		check("given back", "after the end of a hold", 100)
		mustSettle(t, h, 5)
		check("given back", "once 5 of those given back were used", 95)

		grants, ds, err := l.TakeAll(ctx, Request{Rule: r, Key: "several", Cost: 30, Hold: time.Minute})
		if err != nil || grants == nil {
			t.Fatal(ds, err)
		}
		clock.advance(time.Second)
		later, ds, err := l.TakeAll(ctx, Request{Rule: r, Key: "several", Cost: 20, Hold: time.Minute})
		if err != nil || later == nil {
			t.Fatal(ds, err)
		}
		refunded("several", 40)
		check("several", "with 50 held", 50)
		both := append(grants, later...)
		if err := both.Settle(ctx, 4); err != nil {
			t.Fatal(err)
		}
		check("several", "once 4 units of each hold were used", 92)
	}
}

// Invalid calls return an error at once, without a trip.
func TestInvalidCallsOfHolds(t *testing.T) {
	ctx := context.Background()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	r := newRule(t, l, "r", limit.PerHour(100))
	counting := newRule(t, l, "counting", limit.PerHour(100), Use(limit.FixedWindow()), CountDenied())
	for _, c := range []struct {
		rule  *Rule
		key   string
		units int64
		life  time.Duration
		want  error
	}{
		{r, "k", 1, 0, limit.ErrInvalidHold},
		{r, "k", 1, time.Microsecond, limit.ErrInvalidHold},
		{r, "k", 1, 25 * time.Hour, limit.ErrInvalidHold},
		{r, "", 1, time.Second, limit.ErrInvalidKey},
		{r, "k", 0, time.Second, limit.ErrInvalidCost},
		{r, "k", 101, time.Second, limit.ErrCostExceedsLimit},
		{counting, "k", 1, time.Second, limit.ErrInvalidHold},
	} {
		if h, d, err := c.rule.Hold(ctx, c.key, c.units, c.life); h != nil || d.Allowed || !errors.Is(err, c.want) {
			t.Errorf("%+v: %+v, %+v, %v", c, h, d, err)
		}
		if holds, _, err := l.HoldAll(ctx, c.life, Request{Rule: c.rule, Key: c.key, Cost: c.units}); holds != nil || !errors.Is(err, c.want) {
			t.Errorf("%+v, all: %+v, %v", c, holds, err)
		}
		if c.life == 0 {
			continue // such a request is charged for good
		}
		request := Request{Rule: c.rule, Key: c.key, Cost: c.units, Hold: c.life}
		if grants, _, err := l.TakeAll(ctx, request); grants != nil || !errors.Is(err, c.want) {
			t.Errorf("%+v, taken: %+v, %v", c, grants, err)
		}
	}
	for name, call := range map[string]func(Request) error{
		"AllowAll":                 func(q Request) error { _, err := l.AllowAll(ctx, q); return err },
		"AllowEach":                func(q Request) error { _, err := l.AllowEach(ctx, q); return err },
		"HoldAll for another time": func(q Request) error { _, _, err := l.HoldAll(ctx, time.Hour, q); return err },
	} {
		if err := call(Request{Rule: r, Key: "k", Cost: 1, Hold: time.Minute}); !errors.Is(err, limit.ErrInvalidHold) {
			t.Errorf("%s: %v", name, err)
		}
	}
	h := mustHold(t, r, "k", 1, time.Minute)
	for _, used := range []int64{-1, 1 << 60} {
		if err := h.Settle(ctx, used); !errors.Is(err, limit.ErrInvalidCost) {
			t.Errorf("settled with %d: %v", used, err)
		}
	}
	if err := h.Extend(ctx, 0); !errors.Is(err, limit.ErrInvalidHold) {
		t.Errorf("extended by nothing: %v", err)
	}
	mustSettle(t, h, 1)
}

// Units that a dead process held stay charged, or are given back within a second of the holds' end, as the rule's
// policy says. A process that has just been denied, and remembers that, gets them, too.
func TestHoldsThatNobodySettles(t *testing.T) {
	ctx, clock := context.Background(), newVirtual()
	server, prefix := redistest.Shared(t), redistest.Prefix()
	dead := newLimiterOn(t, server.Client(t), prefix, VirtualClock(clock.now))
	alive := newLimiterOn(t, server.Client(t), prefix, VirtualClock(clock.now))
	for _, a := range limit.Algorithms() {
		for _, policy := range []UnsettledPolicy{Keep, GiveBack} {
			name, lim := a.Name()+policy.String()[:1], limit.PerDay(100).WithBurst(100)
			option := []RuleOption{Use(a), Unsettled(policy)}
			held := mustHold(t, newRule(t, dead, name, lim, option...), "k", 100, time.Minute)
			r := newRule(t, alive, name, lim, option...)
			if err := held.Extend(ctx, 2*time.Minute); err != nil {
				t.Fatal(err)
			}
			clock.advance(2*time.Minute - time.Millisecond)
			if d := mustAllow(t, r, "k", 50); d.Allowed {
				t.Errorf("%v, %v: granted before the hold's end: %+v", a, policy, d)
			}
			clock.advance(time.Second)
			d := mustAllow(t, r, "k", 50)
			if d.Allowed != (policy == GiveBack) {
				t.Errorf("%v, %v: a second after the hold's end: %+v", a, policy, d)
			}
			// The process was not dead after all: the units that it has used are still charged, once.
			mustSettle(t, held, 30)
			want := int64(70)
			if policy == GiveBack {
				want = 20
			}
			if got := left(t, r, "k"); a != limit.GCRA() && got != want {
				t.Errorf("%v, %v: %d units are free after a late settlement, want %d", a, policy, got, want)
			}
			if err := held.Extend(ctx, time.Minute); !errors.Is(err, limit.ErrHoldEnded) {
				t.Errorf("%v, %v: extended after its end: %v", a, policy, err)
			}
		}
	}
	if c := dead.Stats().Holds; c.Late != c.Settled || c.Reclaimed != c.Settled/2 || c.Lost != 0 {
		t.Errorf("%+v", c)
	}
}

// Law 9: HoldAll holds the units of all requests or of none, in one trip.
func TestLaw9HoldAll(t *testing.T) {
	ctx := context.Background()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	tokens := newRule(t, l, "tokens", limit.PerHour(1000), Use(limit.SlidingLog()))
	budget := newRule(t, l, "budget", limit.PerCalendar(1500, limit.CalendarMonth, time.UTC))
	dry := newRule(t, l, "dry", limit.PerHour(10), DryRun())
	hold := func(n int64) ([]*Hold, []limit.Decision) {
		t.Helper()
		holds, d, err := l.HoldAll(ctx, time.Minute, Request{Rule: tokens, Key: "tenant", Cost: n}, Request{Rule: dry, Key: "tenant", Cost: 10}, Request{Rule: budget, Key: "organisation", Cost: n})
		if err != nil {
			t.Fatal(err)
		}
		return holds, d
	}
	first, _ := hold(800)
	if len(first) != 3 {
		t.Fatalf("%+v", first)
	}
	if holds, d := hold(300); holds != nil || !d[0].Denied() || !d[2].HeldBack {
		t.Errorf("%+v, %+v", holds, d)
	}
	if a, b := left(t, tokens, "tenant"), left(t, budget, "organisation"); a != 200 || b != 700 {
		t.Errorf("after a denial %d and %d are free", a, b)
	}
	for _, h := range first {
		mustSettle(t, h, 500)
	}
	second, d := hold(400)
	if len(second) != 3 || !d[1].WouldDeny {
		t.Fatalf("%+v, %+v", second, d)
	}
	for _, h := range second {
		if err := h.Cancel(ctx); err != nil {
			t.Error(err)
		}
	}
	if a, b := left(t, tokens, "tenant"), left(t, budget, "organisation"); a != 500 || b != 1000 {
		t.Errorf("after one was settled and one cancelled %d and %d are free", a, b)
	}
}

// A hold is denied if its key has too many open holds. Requests that hold nothing are not affected.
func TestTooManyHolds(t *testing.T) {
	ctx := context.Background()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	r := newRule(t, l, "r", limit.PerHour(100_000), Use(limit.FixedWindow()))
	var holds []*Hold
	for range lua.MaxHolds {
		holds = append(holds, mustHold(t, r, "k", 1, time.Minute))
	}
	if h, d, err := r.Hold(ctx, "k", 1, time.Minute); h != nil || d.Allowed || d.Remaining < 1 || d.RetryAfter <= 0 || d.RetryAfter > time.Minute || err != nil {
		t.Errorf("%+v, %+v, %v", h, d, err)
	}
	if d := mustAllow(t, r, "k", 1); !d.Allowed || d.Tier != limit.TierRedis {
		t.Errorf("a request that holds nothing: %+v", d)
	}
	mustSettle(t, holds[0], 1)
	mustHold(t, r, "k", 1, time.Minute)
}

// Extend never shortens a hold, whatever the rule does with unsettled holds.
func TestExtendDoesNotShortenAHold(t *testing.T) {
	clock := newVirtual()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), VirtualClock(clock.now))
	r := newRule(t, l, "r", limit.PerDay(100), Use(limit.SlidingLog()), Unsettled(GiveBack))
	h := mustHold(t, r, "k", 60, time.Hour)
	if err := h.Extend(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	clock.advance(30 * time.Minute)
	if d := mustAllow(t, r, "k", 50); d.Allowed {
		t.Errorf("the hold was given back: %+v", d)
	}
	mustSettle(t, h, 60)
	if c := l.Stats().Holds; c.Late != 0 || c.Reclaimed != 0 || c.Settled != 1 {
		t.Errorf("%+v", c)
	}
}
