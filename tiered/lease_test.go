package tiered

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/lease"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// left returns the number of a key's units that are free in Redis.
func left(t testing.TB, r *Rule, key string) int64 {
	t.Helper()
	replies, err := r.limiter.shard.DecideAll(context.Background(), []remote.Entry{{Key: key, Rule: r.encoded, Operation: lua.Peek, Cost: 1}}, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return replies[0].Remaining
}

// spendUntilLeased asks for single units of a key until the process has a lease, and returns how many were
// granted.
func spendUntilLeased(t testing.TB, r *Rule, key string) (granted int64) {
	t.Helper()
	redistest.Eventually(t, "a lease", func() bool {
		d := mustAllow(t, r, key, 1)
		if !d.Allowed {
			t.Fatalf("%+v after %d units", d, granted)
		}
		granted++
		return d.Tier == limit.TierLease
	})
	return granted
}

// Requests for a hot key are decided from a lease, without Redis. Every unit of the lease was charged in Redis
// before.
func TestLeasesAreSpentWithoutATrip(t *testing.T) {
	clock := newVirtual()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), VirtualClock(clock.now))
	for _, a := range limit.Algorithms() {
		r := newRule(t, l, a.Name(), limit.PerMinute(1000).WithBurst(1000), Use(a), Lease(10))
		tiers := map[limit.Tier]int64{}
		for spent := int64(1); spent <= 200; spent++ {
			d := mustAllow(t, r, "k", 1)
			tiers[d.Tier]++
			if !d.Allowed || d.Granted != 1 || d.ChargedAt == 0 || d.Limit != 1000 {
				t.Fatalf("%v: %+v", a, d)
			}
			if d.Remaining != 1000-spent {
				t.Fatalf("%v: %d remaining after %d units: %+v", a, d.Remaining, spent, d)
			}
			if charged := 1000 - left(t, r, "k"); charged != spent+l.leases.Left() {
				t.Fatalf("%v: %d units charged, %d spent and %d on lease", a, charged, spent, l.leases.Left())
			}
		}
		if tiers[limit.TierLease] < 150 || tiers[limit.TierRedis] > 50 {
			t.Errorf("%v: decided by tier: %v", a, tiers)
		}
		clock.advance(time.Second)
	}
}

// A hold is charged in Redis even while the process has units of the key on lease. The leased units stay on
// lease, and units that were held and not used are given back.
func TestHoldsAreNotTakenFromLeases(t *testing.T) {
	clock := newVirtual()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), VirtualClock(clock.now))
	r := newRule(t, l, "r", limit.PerMinute(1000), Use(limit.SlidingLog()), Lease(10))
	spendUntilLeased(t, r, "k")
	free, leased := left(t, r, "k"), l.leases.Left()
	if leased < 1 {
		t.Fatal("nothing is on lease")
	}
	h, d, err := r.Hold(t.Context(), "k", 1, time.Minute)
	if err != nil || d.Tier != limit.TierRedis || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	if n := l.leases.Left(); n < leased {
		t.Errorf("%d units are on lease, %d before the hold", n, leased)
	}
	mustSettle(t, h, 0)
	if n := left(t, r, "k") + l.leases.Left(); n != free+leased {
		t.Errorf("%d units are free or on lease after the hold, %d before", n, free+leased)
	}
}

// The last units are exact: however leases are distributed, exactly N units are granted, and near
// the limit there are no leases.
func TestTheLastUnitsAreExact(t *testing.T) {
	server, prefix, clock := redistest.Shared(t), redistest.Prefix(), newVirtual()
	for _, a := range []limit.Algorithm{limit.SlidingLog(), limit.SlidingCounter(16, limit.Strict), limit.FixedWindow()} {
		const quota = 400
		lim := limit.PerHour(quota)
		f := &leaseFleet{clock: clock,
			start: func() *Limiter { return newLimiterOn(t, server.Client(t), prefix, VirtualClock(clock.now)) },
			rule:  func(l *Limiter) *Rule { return newRule(t, l, a.Name(), lim, Use(a), Lease(10)) },
		}
		for range 3 {
			f.join()
		}
		granted, last := int64(0), f.onLease()
		for i := 0; granted < quota; i++ {
			if i > 2*quota {
				t.Fatalf("%v: %d of %d units granted", a, granted, quota)
			}
			d := f.ask(t, i/5%3, "k", 1)
			if d.Allowed {
				granted++
			} else {
				clock.advance(time.Second) // leases end, and denials are forgotten
			}
			reserve := f.rules[0].lease.Reserve
			if out := f.onLease(); out > last && d.Remaining < reserve {
				t.Fatalf("%v: leased with %d units remaining: %d after %d", a, d.Remaining, out, last)
			} else {
				last = out
			}
		}
		clock.advance(2 * time.Second)
		for i := range f.rules {
			if d := f.ask(t, i, "k", 1); d.Allowed {
				t.Errorf("%v: unit %d granted", a, quota+1)
			}
		}
	}
}

// Unused units go back to Redis soon after the last request for the key, and when the limiter is closed (law 12).
// After a crash, only the unused units are lost: they stay charged.
func TestUnusedUnitsGoBack(t *testing.T) {
	before := runtime.NumGoroutine()
	server, prefix := redistest.Shared(t), redistest.Prefix()
	option := []RuleOption{Use(limit.SlidingLog()), Lease(20)}
	watcher := newRule(t, newLimiterOn(t, server.Client(t), prefix), "r", limit.PerHour(1000), option...)
	client := server.Client(t)
	l := redistest.Reached(t, client, func() (*Limiter, error) {
		return New(client, Prefix(prefix), Deadline(5*time.Second), LedgerKeys(1000), RememberDenials(1000))
	})
	r := newRule(t, l, "r", limit.PerHour(1000), option...)

	spent := spendUntilLeased(t, r, "idle")
	if l.leases.Left() == 0 || left(t, watcher, "idle") == 1000-spent {
		t.Fatalf("%d on lease, %d left in Redis after %d units", l.leases.Left(), left(t, watcher, "idle"), spent)
	}
	redistest.Eventually(t, "an idle lease is given back", func() bool { return left(t, watcher, "idle") == 1000-spent })
	if l.leases.Left() != 0 {
		t.Errorf("%d units can be spent although they were given back", l.leases.Left())
	}

	spent = spendUntilLeased(t, r, "closed")
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if got := left(t, watcher, "closed"); got != 1000-spent {
		t.Errorf("%d left in Redis after Close, %d were spent of 1000", got, spent)
	}
	if _, err := r.Allow(context.Background(), "closed"); !errors.Is(err, limit.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := watcher.limiter.Close(); err != nil {
		t.Error(err)
	}
	redistest.Eventually(t, "no goroutine left", func() bool { return runtime.NumGoroutine() <= before+4 }) // 4 of the clients
}

// If Redis is lost, leases are spent until they end. Then the outage policy decides, from a record that already
// includes the leased units.
func TestLeasesInAnOutage(t *testing.T) {
	server, clock := redistest.Start(t), newVirtual()
	l := newLimiterOn(t, server.Client(t), redistest.Prefix(), VirtualClock(clock.now))
	r := newRule(t, l, "r", limit.PerHour(100), Use(limit.SlidingLog()), Lease(50))
	granted := spendUntilLeased(t, r, "k")
	held := l.leases.Left()
	server.Kill()
	l.shard.Breaker.ForceOpen(errors.New("killed"))
	for range held - 1 {
		if d := mustAllow(t, r, "k", 1); d.Tier != limit.TierLease {
			t.Fatalf("%+v", d)
		}
		granted++
	}
	clock.advance(lease.Longest)
	for {
		d := mustAllow(t, r, "k", 1)
		if !d.Degraded() {
			t.Fatalf("%+v", d)
		}
		if !d.Allowed {
			break
		}
		granted++
	}
	if granted != 100 {
		t.Errorf("%d units granted before and in the outage, want 100", granted)
	}
}

// All other operations work while units are on lease.
func TestOperationsWithLeases(t *testing.T) {
	ctx := context.Background()
	server, prefix, clock := redistest.Shared(t), redistest.Prefix(), newVirtual()
	l := newLimiterOn(t, server.Client(t), prefix, VirtualClock(clock.now))
	r := newRule(t, l, "r", limit.PerHour(100), Use(limit.SlidingLog()), Lease(30))
	spent := spendUntilLeased(t, r, "k")
	held := l.leases.Left()

	if d, err := r.Peek(ctx, "k", held); err != nil || !d.Allowed || d.Granted != 0 || d.Tier != limit.TierLease || d.Remaining != 100-spent {
		t.Errorf("a peek: %+v, %v", d, err)
	}
	if d, err := r.Peek(ctx, "k", held+1); err != nil || d.Tier != limit.TierRedis || d.Remaining != 100-spent-held {
		t.Errorf("a peek at more: %+v, %v", d, err)
	}
	d, err := r.AllowUpTo(ctx, "k", 2)
	if err != nil || d.Granted != 2 || d.Tier != limit.TierLease {
		t.Errorf("up to 2: %+v, %v", d, err)
	}
	if err := r.Refund(ctx, "k", &d, 2); err != nil || left(t, r, "k") != 100-spent-held+2 || l.leases.Left() != held-2 {
		t.Errorf("a refund goes to Redis: %v, %d there, %d on lease", err, left(t, r, "k"), l.leases.Left())
	}
	if d, err := r.Wait(ctx, "k", 1); err != nil || d.Tier != limit.TierLease {
		t.Errorf("a wait: %+v, %v", d, err)
	}
	all, err := l.AllowAll(ctx, Request{Rule: r, Key: "k", Cost: 1}, Request{Rule: r, Key: "other", Cost: 1})
	if err != nil || !all[0].Allowed || all[0].Tier != limit.TierRedis || l.leases.Left() != held-3 {
		t.Errorf("all: %+v, %v", all, err)
	}

	// A rule with another limit does not use the lease. The unused units under the old limit go back.
	larger, err := r.WithLimit(limit.PerHour(200))
	if err != nil {
		t.Fatal(err)
	}
	if d := mustAllow(t, larger, "k", 1); d.Tier != limit.TierRedis {
		t.Errorf("another limit: %+v", d)
	}
	changed, err := l.ChangeRule("r", limit.PerHour(50), Use(limit.SlidingLog()))
	if err != nil {
		t.Fatal(err)
	}
	charged := 100 - left(t, r, "k")
	if d := mustAllow(t, changed, "k", 1); d.Tier != limit.TierRedis || d.Remaining != 50-charged-1 {
		t.Errorf("after a change, %d were charged: %+v", charged, d)
	}
	clock.advance(lease.Longest)
	mustAllow(t, r, "k", 1)
	if got := 100 - left(t, r, "k"); got != charged+2-(held-3) || l.leases.Left() != 0 {
		t.Errorf("%d charged after the lease has ended, %d on lease", got, l.leases.Left())
	}

	// Reset forgets the lease, and does not give its units back to the new key.
	spendUntilLeased(t, r, "reset")
	if err := r.Reset(ctx, "reset"); err != nil {
		t.Fatal(err)
	}
	if l.leases.Left() != 0 || left(t, r, "reset") != 100 {
		t.Errorf("%d on lease, %d left", l.leases.Left(), left(t, r, "reset"))
	}
	clock.advance(lease.Longest)
	if d := mustAllow(t, r, "reset", 100); !d.Allowed || d.Remaining != 0 {
		t.Errorf("%+v", d)
	}
}

func TestLeaseOptions(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	for _, percent := range []int{-1, 0, maxLeased + 1} {
		for _, option := range []RuleOption{Lease(percent), LeaseWithinLimit(percent)} {
			if _, err := l.Rule("bad", limit.PerHour(100), option); !errors.Is(err, limit.ErrInvalidOption) {
				t.Errorf("%d %%: %v", percent, err)
			}
		}
	}
	// One of them exceeds the limit and the other does not, so the order of the options must not decide.
	for _, both := range [][]RuleOption{{Lease(10), LeaseWithinLimit(10)}, {LeaseWithinLimit(10), Lease(10)}} {
		if _, err := l.Rule("both", limit.PerHour(100), both...); !errors.Is(err, limit.ErrInvalidOption) {
			t.Errorf("both Lease and LeaseWithinLimit: %v", err)
		}
	}
	for name, tc := range map[string]struct {
		lim    limit.Limit
		a      limit.Algorithm
		option RuleOption
		worst  int64
	}{
		"log":             {limit.PerHour(100), limit.SlidingLog(), Lease(10), 110},
		"log-within":      {limit.PerHour(100), limit.SlidingLog(), LeaseWithinLimit(10), 100},
		"estimate":        {limit.PerHour(100), limit.SlidingCounter(4, limit.Estimate), Lease(10), 209},
		"estimate-within": {limit.PerHour(100), limit.SlidingCounter(4, limit.Estimate), LeaseWithinLimit(10), 189},
		"gcra":            {limit.PerHour(100).WithBurst(20), limit.GCRA(), Lease(10), 129},
		"gcra-within":     {limit.PerHour(100).WithBurst(20), limit.GCRA(), LeaseWithinLimit(10), 119},
		// At the smaller rate, a burst of 100 would take longer to return than the longest window.
		"log-of-a-year":  {limit.Per(100, limit.MaxWindow), limit.SlidingLog(), LeaseWithinLimit(40), 100},
		"gcra-of-a-year": {limit.Per(100, limit.MaxWindow), limit.GCRA(), LeaseWithinLimit(40), 159},
		"gcra-of-a-day":  {limit.PerDay(100), limit.GCRA(), LeaseWithinLimit(40), 199},
		"fixed":          {limit.PerHour(100), limit.FixedWindow(), Lease(10), 200},
		"too-small":      {limit.PerHour(9), limit.SlidingLog(), Lease(10), 9},
		"too-short":      {limit.Per(100, 99*time.Millisecond), limit.SlidingLog(), Lease(10), 100},
	} {
		r := newRule(t, l, name, tc.lim, Use(tc.a), tc.option)
		if got := r.WorstCase(); got != tc.worst {
			t.Errorf("%s: worst case %d, want %d", name, got, tc.worst)
		}
	}
}
