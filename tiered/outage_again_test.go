package tiered

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Law 11: after a loss of memory, an instance settles for as long as the longest window of any rule. Redis alone
// decides about slots long before that. If it is then lost again, shares are made of what is held at that moment, and
// not at the first loss.
func TestLaw11SlotsAreSharedAnewIfRedisHasDecidedAlone(t *testing.T) {
	t.Parallel()
	const n, ttl = 100, 2 * time.Second // a busy machine must not miss a renewal
	server, prefix := redistest.Start(t), redistest.Prefix()
	ctx := context.Background()
	start := func() *Rule {
		l := newLimiterOn(t, server.Client(t), prefix, Deadline(300*time.Millisecond))
		newRule(t, l, "daily", limit.PerDay(10))
		return newRule(t, l, "jobs", limit.Concurrent(n), SlotTTL(ttl), DenialLife(0))
	}
	a, b := start(), start()
	fleetOfTwo(t, a, b)
	kept, much := mustAcquire(t, a, "k", 1), mustAcquire(t, a, "k", 89)
	if err := server.Client(t).FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "the loss is noticed", func() bool { return a.limiter.State() == Settling && b.limiter.State() == Settling })
	redistest.Eventually(t, "the share is fixed", func() bool {
		slot, _, err := a.Acquire(ctx, "k", 1)
		slot.Release()
		return err == nil && slot != nil
	})
	awaitSettled(t, a, b)
	much.Release()
	redistest.Eventually(t, "the other one gets what was released", func() bool {
		slot, _, _ := b.Acquire(ctx, "k", 99)
		return slot != nil
	})
	mustBeFull(t, a, "k", 1)
	server.Kill()
	redistest.Eventually(t, "the outage is noticed", func() bool {
		for _, r := range []*Rule{a, b} {
			if slot, _, _ := r.Acquire(ctx, "x", 1); slot != nil {
				slot.Release()
			}
		}
		return a.limiter.State() == Outage && b.limiter.State() == Outage
	})
	more := int64(0)
	for slot := (*Slot)(nil); ; more++ {
		if slot, _, _ = a.Acquire(ctx, "k", 1); slot == nil {
			break
		}
	}
	if !kept.Held() || 1+99+more > n*3/2 {
		t.Errorf("%d units of %d are held, want at most %d", 100+more, n, n*3/2)
	}
}

// The same holds for rules with short windows. Otherwise, each instance would keep the share that it had at the first
// loss, and traffic that has moved since would have one more.
func TestLaw11SharesAreFixedAnewIfRedisHasDecidedAlone(t *testing.T) {
	t.Parallel()
	const quota, window, windows = 100, time.Second, 3
	server, prefix := redistest.Start(t), redistest.Prefix()
	ctx := context.Background()
	start := func() *Rule {
		l := newLimiterOn(t, server.Client(t), prefix, Deadline(300*time.Millisecond))
		newRule(t, l, "daily", limit.PerDay(10))
		return newRule(t, l, "r", limit.Per(quota, window), DenialLife(0))
	}
	a, b := start(), start()
	fleetOfTwo(t, a, b)
	use := func(r *Rule) (granted int64) {
		d, err := r.Allow(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Millisecond)
		return d.Granted
	}
	for end := time.Now().Add(2 * window); time.Now().Before(end); {
		use(a)
	}
	if err := server.Client(t).FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "the loss is noticed", func() bool { use(a); return a.limiter.State() == Settling && b.limiter.State() == Settling })
	for end := time.Now().Add(window / 2); time.Now().Before(end); {
		use(a)
	}
	awaitSettled(t, a, b)
	for end := time.Now().Add(2 * window); time.Now().Before(end); {
		use(b)
	}
	server.Kill()
	redistest.Eventually(t, "the outage is noticed", func() bool {
		_, _ = a.Allow(ctx, "x")
		_, _ = b.Allow(ctx, "x")
		return a.limiter.State() == Outage && b.limiter.State() == Outage
	})
	granted := int64(0)
	for end := time.Now().Add(windows * window); time.Now().Before(end); {
		granted += use(a) + use(b)
	}
	// The shares sum to at most 3/2 of the limit, times 16/15, and some of it may come in a burst.
	if most := int64(windows*quota*8/5 + quota/2); granted > most {
		t.Errorf("%d units were granted in %d windows of %d, want at most %d", granted, windows, quota, most)
	}
}

// awaitSettled waits until Redis alone decides about rules, although the incident lasts.
func awaitSettled(t *testing.T, rules ...*Rule) {
	redistest.Eventually(t, "the rules have stopped settling", func() bool {
		return !slices.ContainsFunc(rules, func(r *Rule) bool {
			return r.limiter.shard.OutageOf(r.inOutage).Number != 0 || r.limiter.State() != Settling
		})
	})
}

func fleetOfTwo(t *testing.T, a, b *Rule) {
	redistest.Eventually(t, "the fleet is known", func() bool {
		return a.limiter.FleetSize() == 2 && b.limiter.FleetSize() == 2 && a.limiter.State() == Healthy && b.limiter.State() == Healthy
	})
}
