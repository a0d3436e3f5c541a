package tiered

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// While Redis is lost, Peek predicts the decision of Acquire, under every outage policy.
func TestPeekOfSlotsInAnOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), redistest.Prefix())
	redistest.Eventually(t, "Redis decides", func() bool { return l.State() == Healthy })
	rules := map[OutagePolicy]*Rule{}
	for policy := range map[OutagePolicy]int64{Approximate: 3, Allow: 6, Deny: 0} {
		rules[policy] = newRule(t, l, policy.String(), limit.Concurrent(3), OnOutage(policy))
	}
	loseRedis(server, l)
	for policy, want := range map[OutagePolicy]int64{Approximate: 3, Allow: 6, Deny: 0} {
		r, acquired := rules[policy], int64(0)
		for range 6 {
			peek := mustPeek(t, r, "k")
			slot, d, err := r.Acquire(t.Context(), "k", 1)
			if err != nil || peek.Allowed != d.Allowed || peek.Tier != d.Tier || peek.Granted != 0 || (peek.RetryAfter > 0) == peek.Allowed {
				t.Errorf("%v: peeked %+v, acquired %+v, %v", policy, peek, d, err)
			}
			if policy == Approximate && peek.Remaining != 3-acquired {
				t.Errorf("%v: %+v with %d held", policy, peek, acquired)
			}
			if slot != nil {
				acquired++
				defer slot.Release()
			}
		}
		if acquired != want {
			t.Errorf("%v: %d were acquired, want %d", policy, acquired, want)
		}
	}
}

// A Peek at slots whose context ends before Redis answers ends with the context's error. No outage policy decides it.
func TestPeekOfSlotsInAHurry(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		l := newLimiterOn(t, bubble.Client(t), redistest.Prefix(), Deadline(time.Second))
		r := newRule(t, l, "jobs", limit.Concurrent(3))
		mustPeek(t, r, "k")
		bubble.Late.Store(int64(200 * time.Millisecond))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if d, err := r.Peek(ctx, "k", 1); !errors.Is(err, context.DeadlineExceeded) || d != (limit.Decision{}) {
			t.Errorf("%+v, %v", d, err)
		}
		bubble.Late.Store(0)
		if d := mustPeek(t, r, "k"); d.Tier != limit.TierRedis || l.State() != Healthy {
			t.Errorf("afterwards: %+v, %v", d, l.State())
		}
	})
}
