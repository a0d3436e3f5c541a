package tiered

import (
	"context"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// left is what Redis has free of a key.
func left(t testing.TB, r *Rule, key string) int64 {
	t.Helper()
	replies, err := r.limiter.batcher.DecideAll(context.Background(), []remote.Entry{{Key: key, Rule: r.encoded, Operation: lua.Peek, Cost: 1}})
	if err != nil {
		t.Fatal(err)
	}
	return replies[0].Remaining
}

// spendUntilLeased asks for single units of a key until there is a lease of it, and
// returns how many were granted.
func spendUntilLeased(t testing.TB, r *Rule, key string) (granted int64) {
	t.Helper()
	eventually(t, "a lease", func() bool {
		d := mustAllow(t, r, key, 1)
		if !d.Allowed {
			t.Fatalf("%+v after %d units", d, granted)
		}
		granted++
		return d.Tier == limit.TierLease
	})
	return granted
}

// A key that is asked for often is decided from a lease, without Redis; every unit was
// charged there before.
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
			if charged := 1000 - left(t, r, "k"); charged != spent+l.leasedUnits() {
				t.Fatalf("%v: %d units charged, %d spent and %d on lease", a, charged, spent, l.leasedUnits())
			}
		}
		if tiers[limit.TierLease] < 150 || tiers[limit.TierRedis] > 50 {
			t.Errorf("%v: decided by tier: %v", a, tiers)
		}
		clock.advance(time.Second)
	}
}
