package tiered

import (
	"context"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// After Redis has lost its data, a refund of units from before the loss gives them back once: Redis takes them off what
// others have charged since, and so is charged again for all that this instance was granted before.
func TestLaw11RefundsAfterALossAreMadeOnce(t *testing.T) {
	for _, a := range []limit.Algorithm{limit.SlidingLog(), limit.SlidingCounter(16, limit.Strict), limit.FixedWindow()} {
		redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
			prefix, client := redistest.Prefix(), bubble.Client(t)
			l, others := newLimiterOn(t, bubble.Client(t), prefix), newLimiterOn(t, bubble.Client(t), prefix)
			r := newRule(t, l, "r", limit.PerDay(100), Use(a))
			before := mustAllow(t, r, "k", 5)
			if err := client.FlushAll(context.Background()).Err(); err != nil {
				t.Fatal(err)
			}
			redistest.Eventually(t, "both notice the loss", func() bool {
				return l.Stats().MemoryLosses > 0 && others.Stats().MemoryLosses > 0
			})
			mustAllow(t, newRule(t, others, "r", limit.PerDay(100), Use(a)), "k", 7)
			mustRefund(t, r, "k", &before, 5)
			mustAllow(t, r, "k", 1)
			redistest.Eventually(t, "all is charged", func() bool { return l.Stats().UnchargedUnits == 0 })
			if remaining := left(t, r, "k"); remaining != 92 {
				t.Errorf("%v: %d units remain, want 92", a, remaining)
			}
		})
	}
}

// The same holds for what is left of a lease.
func TestLaw11RestsOfLeasesAfterALossAreGivenBackOnce(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		prefix, client := redistest.Prefix(), bubble.Client(t)
		l, others := newLimiterOn(t, bubble.Client(t), prefix), newLimiterOn(t, bubble.Client(t), prefix)
		r := newRule(t, l, "r", limit.PerDay(1000), Use(limit.SlidingLog()), Lease(50))
		time.Sleep(900 * time.Millisecond) // a lease lasts a second, and heartbeats come every second
		granted := spendUntilLeased(t, r, "k")
		if err := client.FlushAll(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
		redistest.Eventually(t, "both notice the loss", func() bool {
			return l.Stats().MemoryLosses > 0 && others.Stats().MemoryLosses > 0
		})
		rest := l.Stats().LeasedUnits
		if rest == 0 {
			t.Fatal("nothing is on lease")
		}
		mustAllow(t, newRule(t, others, "r", limit.PerDay(1000), Use(limit.SlidingLog())), "k", rest)
		redistest.Eventually(t, "the lease is over", func() bool { return l.Stats().LeasedUnits == 0 })
		time.Sleep(time.Second)
		redistest.Eventually(t, "all is charged", func() bool { return l.Stats().UnchargedUnits == 0 })
		if used := 1000 - left(t, r, "k"); used != granted+rest {
			t.Errorf("Redis counts %d units, want %d and the others' %d", used, granted, rest)
		}
	})
}
