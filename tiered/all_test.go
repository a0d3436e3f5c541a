package tiered

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// AllowAll of no requests denies none, and AllowAll of one request decides like AllowN.
func TestAllowAllOfNoneAndOfOne(t *testing.T) {
	inOutage(t, limit.PerHour(10), func(t *testing.T, r *Rule) {
		all := func(requests ...Request) []limit.Decision {
			t.Helper()
			ds, err := r.limiter.AllowAll(context.Background(), requests...)
			if err != nil || len(ds) != len(requests) {
				t.Fatalf("%+v, %v", ds, err)
			}
			return ds
		}
		all()
		for range 3 { // granted, then denied, then (with Redis) denied from memory
			one, same := all(Request{Rule: r, Key: "one", Cost: 7})[0], mustAllow(t, r, "same", 7)
			if one.Allowed != same.Allowed || one.Granted != same.Granted || one.Remaining != same.Remaining {
				t.Errorf("%+v, by AllowN %+v", one, same)
			}
			if (one.RetryAfter > 0) != (same.RetryAfter > 0) || (one.ChargedAt != 0) != (same.ChargedAt != 0) {
				t.Errorf("%+v, by AllowN %+v", one, same)
			}
		}
	})
}

// Law 9: a group whose keys share a slot is decided in one trip. If one limit denies it, the others are not
// charged even for a moment: nothing is written for their keys.
func TestLaw9ADeniedGroupOfOneSlotWritesNothing(t *testing.T) {
	t.Parallel()
	for _, client := range []redis.UniversalClient{redistest.Shared(t).Client(t), redistest.SharedCluster(t).Client(t)} {
		l := newLimiterOn(t, client, redistest.Prefix(), RememberDenials(0))
		full := newRule(t, l, "full", limit.PerHour(3))
		mustAllow(t, full, "k", 3)
		for _, a := range limit.Algorithms() {
			r := newRule(t, l, a.Name(), limit.PerHour(100), Use(a))
			before := tripsOf(l)
			ds, err := l.AllowAll(t.Context(), Request{Rule: r, Key: "k", Cost: 2}, Request{Rule: full, Key: "k", Cost: 1})
			if err != nil || !ds[0].HeldBack || !ds[1].Denied() {
				t.Errorf("%v: %+v, %v", a, ds, err)
			}
			if n := tripsOf(l) - before; n != 1 {
				t.Errorf("%v: %d trips for one group", a, n)
			}
			if key := l.keys.Key(r.name, keyOf(l, "k").inRedis()); client.Exists(t.Context(), key).Val() != 0 {
				t.Errorf("%v: a denied group has written %s", a, key)
			}
		}
	}
}

// A rule of another limiter, whose counts may be in another Redis, is refused.
func TestRulesOfAnotherLimiter(t *testing.T) {
	server := redistest.Shared(t)
	l, other := newLimiterOn(t, server.Client(t), redistest.Prefix()), newLimiterOn(t, server.Client(t), redistest.Prefix())
	q := []Request{{Rule: newRule(t, l, "r", limit.PerHour(1)), Key: "k", Cost: 1}, {Rule: newRule(t, other, "r", limit.PerHour(1)), Key: "k2", Cost: 1}}
	_, all := l.AllowAll(t.Context(), q...)
	_, each := l.AllowEach(t.Context(), q...)
	_, _, take := l.TakeAll(t.Context(), q...)
	for name, err := range map[string]error{"AllowAll": all, "AllowEach": each, "TakeAll": take} {
		if !errors.Is(err, limit.ErrInvalidRule) {
			t.Errorf("%s: %v", name, err)
		}
	}
	mustAllow(t, q[0].Rule, "k", 1) // nothing was charged
}

// Laws 3 and 9: even in an outage, a denied group charges nothing. It leaves this instance's record
// as it was: units granted before leave the window no later, however often the group is tried.
func TestDeniedGroupLeavesTheRecordAlone(t *testing.T) {
	for _, policy := range []OutagePolicy{Approximate, Deny} {
		t.Run(policy.String(), func(t *testing.T) {
			server, clock := redistest.Start(t), newVirtual()
			l := newLimiterOn(t, server.Client(t), redistest.Prefix(), VirtualClock(clock.now))
			counted := newRule(t, l, "counted", limit.PerMinute(10))
			open := newRule(t, l, "open", limit.PerMinute(10), OnOutage(Allow))
			blocked := newRule(t, l, "blocked", limit.PerMinute(1), OnOutage(policy))
			loseRedis(server, l)
			mustAllow(t, counted, "k", 6)
			mustAllow(t, blocked, "k", 1) // uses up the limit, unless the policy denies

			for range 8 {
				clock.advance(5 * time.Second)
				ds, err := l.AllowAll(context.Background(), Request{Rule: counted, Key: "k", Cost: 4}, Request{Rule: open, Key: "k", Cost: 1}, Request{Rule: blocked, Key: "k", Cost: 1})
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range ds {
					if d.Allowed || d.Granted != 0 {
						t.Errorf("%+v", d)
					}
				}
				if ds[0].Remaining != 4 || ds[0].RetryAfter != 0 || ds[2].RetryAfter <= 0 {
					t.Errorf("%+v", ds)
				}
				if c, o := recorded(counted, "k"), recorded(open, "k"); c != 6 || o != 0 {
					t.Errorf("%d and %d units on record, want 6 and 0", c, o)
				}
			}
			clock.advance(30 * time.Second) // the 6 units are more than a window old, the groups are not
			if n := recorded(counted, "k"); n != 0 {
				t.Errorf("%d units of a window ago are still on record", n)
			}
		})
	}
}
