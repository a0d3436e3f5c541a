package tiered

import (
	"context"
	"testing"
	"time"

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
		for range 3 { // granted, denied, and with Redis denied from memory
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
			mustAllow(t, blocked, "k", 1) // if not denied by policy, the next one is

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
			clock.advance(30 * time.Second) // a window and more after the six, not after the groups
			if n := recorded(counted, "k"); n != 0 {
				t.Errorf("%d units of a window ago are still on record", n)
			}
		})
	}
}
