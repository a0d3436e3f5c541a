package tiered

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local/ledger"
)

// loseRedis kills a limiter's server, and opens the breaker, so that the outage begins at once.
func loseRedis(server *redistest.Server, l *Limiter) {
	server.Kill()
	l.shard.Breaker.ForceOpen(errors.New("killed"))
}

func (r *Rule) ask(key string, cost int64, operation int) (q question) {
	q.begin(r, key, cost, operation)
	return q
}

// without returns the decision that a call gets if asking Redis has ended with err.
func without(r *Rule, key string, cost int64, operation int, err error) (d limit.Decision) {
	q := r.ask(key, cost, operation)
	q.fallback(&d, r.limiter.now(), err)
	return d
}

// accountOf returns the account of a key in the ledger.
func accountOf(r *Rule, key string) ledger.Account[*outage.Rule] {
	k := keyOf(r.limiter, key)
	return ledger.Account[*outage.Rule]{Hash: k.hash ^ r.inOutage.Salt, Window: r.limit.Window(), Quota: r.limit.Quota(), Owner: r.inOutage, Key: string(k.inRedis())}
}

// recorded returns how many units of a key this instance's own record has in the current window.
func recorded(r *Rule, key string) int64 {
	a := accountOf(r, key)
	return r.limiter.ledger.Used(&a, r.limiter.now())
}

func mustRefund(t *testing.T, r *Rule, key string, d *limit.Decision, units int64) {
	t.Helper()
	if err := r.Refund(context.Background(), key, d, units); err != nil {
		t.Fatal(err)
	}
}

// Units that were charged without Redis are also refunded without it, even after Redis is back, because Redis
// does not know the charge.
func TestRefundAfterAnOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), redistest.Prefix(), Deadline(5*time.Second))
	r := newRule(t, l, "r", limit.PerHour(10))
	loseRedis(server, l)
	d := mustAllow(t, r, "k", 4)
	if !d.Allowed || !d.Degraded() || d.ChargedAt != 0 {
		t.Fatalf("%+v", d)
	}
	server.Restart()
	redistest.Eventually(t, "Redis decides again", func() bool { return !l.Degraded() })
	// Both the 4 units and these 5 count.
	if d := mustAllow(t, r, "k", 5); d.Degraded() || d.Remaining != 1 {
		t.Fatalf("%+v", d)
	}
	mustRefund(t, r, "k", &d, 3)
	if d.Granted != 1 {
		t.Errorf("%d units are left to refund, want 1", d.Granted)
	}
	if n := recorded(r, "k"); n != 6 {
		t.Errorf("%d units on record, want 6", n)
	}
}

// If the answer to a refund is lost, Refund returns an error. The caller must not retry, because Redis may have
// made the refund. The units stay charged, also in this instance's record.
func TestRefundWithRedisLost(t *testing.T) {
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), redistest.Prefix(), Deadline(5*time.Second))
	r := newRule(t, l, "r", limit.PerHour(10))
	d := mustAllow(t, r, "k", 8)
	if d.ChargedAt == 0 {
		t.Fatalf("%+v", d)
	}
	loseRedis(server, l)
	if err := r.Refund(context.Background(), "k", &d, 6); err == nil || errors.Is(err, limit.ErrInvalidRefund) {
		t.Errorf("error %v", err)
	}
	if d.Granted != 2 {
		t.Errorf("%d units are left to refund, want 2", d.Granted)
	}
	if err := r.Refund(context.Background(), "k", &d, 6); !errors.Is(err, limit.ErrInvalidRefund) {
		t.Errorf("the same refund again: %v", err)
	}
	if n := recorded(r, "k"); n != 8 {
		t.Errorf("%d units on record, want 8", n)
	}
}

// Law 11: units that have left the window are not given back, neither in Redis nor in the record that decides in
// outages.
func TestLateRefundGivesNothing(t *testing.T) {
	clock := newVirtual()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), VirtualClock(clock.now), Deadline(5*time.Second))
	r := newRule(t, l, "r", limit.PerMinute(10))
	old := mustAllow(t, r, "k", 6)
	clock.advance(2 * time.Minute)
	d := mustAllow(t, r, "k", 7)
	mustRefund(t, r, "k", &old, 6)
	if n := recorded(r, "k"); n != 7 {
		t.Errorf("after a refund that came too late %d units are on record, want 7", n)
	}
	mustRefund(t, r, "k", &d, 2)
	if n := recorded(r, "k"); n != 5 {
		t.Errorf("after a refund in time %d units are on record, want 5", n)
	}
	if peek, err := r.Peek(context.Background(), "k", 1); err != nil || peek.Remaining != 5 {
		t.Errorf("%+v, %v; want 5 remaining", peek, err)
	}
}

// Under the outage policies Allow and Deny, which do not count, AllowUpTo of more than the limit grants the whole
// limit or nothing.
func TestAllowUpToUnderOutagePolicies(t *testing.T) {
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), redistest.Prefix())
	allow := newRule(t, l, "allow", limit.PerHour(10), OnOutage(Allow))
	deny := newRule(t, l, "deny", limit.PerHour(10), OnOutage(Deny))
	loseRedis(server, l)
	for range 2 {
		d, err := allow.AllowUpTo(context.Background(), "k", 1000)
		if err != nil || !d.Allowed || d.Granted != 10 || !d.Degraded() {
			t.Errorf("Allow: %+v, %v", d, err)
		}
		d, err = deny.AllowUpTo(context.Background(), "k", 1000)
		if err != nil || d.Allowed || d.Granted != 0 || d.RetryAfter <= 0 || !d.Degraded() {
			t.Errorf("Deny: %+v, %v", d, err)
		}
	}
	if a, d := recorded(allow, "k"), recorded(deny, "k"); a != 20 || d != 0 {
		t.Errorf("%d and %d units on record, want 20 and 0", a, d)
	}
	for _, cost := range []int64{0, -1} {
		if _, err := allow.AllowUpTo(context.Background(), "k", cost); !errors.Is(err, limit.ErrInvalidCost) {
			t.Errorf("up to %d: %v", cost, err)
		}
	}
}

// What remains without Redis can be asked for: it is never more than the rule grants at once. GCRA grants its burst,
// and a rule with LeaseWithinLimit a part of the limit.
func TestWhatRemainsWithoutRedisCanBeAskedFor(t *testing.T) {
	ctx := context.Background()
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		l := newLimiterOn(t, bubble.Client(t), redistest.Prefix(), FleetSize(1), ColdStart(0))
		deny := newRule(t, l, "deny", limit.PerHour(10), OnOutage(Deny))
		rules := []*Rule{
			newRule(t, l, "burst", limit.PerHour(10).WithBurst(4)),
			newRule(t, l, "burst-allow", limit.PerHour(10).WithBurst(4), OnOutage(Allow)),
			newRule(t, l, "leases", limit.PerHour(10), LeaseWithinLimit(50)),
			newRule(t, l, "leases-allow", limit.PerHour(10), LeaseWithinLimit(50), OnOutage(Allow)),
		}
		l.shard.Breaker.ForceOpen(errors.New("lost"))
		for _, r := range rules {
			together, err := l.AllowAll(ctx, Request{Rule: r, Key: "k", Cost: 1}, Request{Rule: deny, Key: "k", Cost: 1})
			if err != nil || !together[0].HeldBack || together[0].Remaining > r.capacity {
				t.Errorf("%s: held back: %+v, %v", r.name, together, err)
			}
			peek, err := r.Peek(ctx, "k", 1)
			if err != nil || !peek.Degraded() || peek.Remaining != r.capacity {
				t.Errorf("%s: peeked %+v, %v; want %d remaining", r.name, peek, err, r.capacity)
			}
			for range 2 {
				d := mustAllow(t, r, "k", 1)
				if _, err := r.AllowN(ctx, "k", d.Remaining); err != nil || !d.Allowed {
					t.Errorf("%s: %d remained: %v", r.name, d.Remaining, err)
				}
			}
		}
	})
}
