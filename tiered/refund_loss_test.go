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

// Units that Redis has lost, and that are refunded before their key is used again, are not charged again, whether or not
// the loss has been noticed by then.
func TestLaw11LostUnitsThatAreRefundedAreNotChargedAgain(t *testing.T) {
	for _, a := range []limit.Algorithm{limit.SlidingLog(), limit.SlidingCounter(16, limit.Strict), limit.FixedWindow()} {
		for _, noticed := range []bool{false, true} {
			redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
				client := bubble.Client(t)
				l := newLimiterOn(t, bubble.Client(t), redistest.Prefix())
				r := newRule(t, l, "r", limit.PerDay(100), Use(a))
				before := mustAllow(t, r, "k", 5)
				if err := client.FlushAll(context.Background()).Err(); err != nil {
					t.Fatal(err)
				}
				notice := func() {
					redistest.Eventually(t, "the loss is noticed", func() bool { return l.Stats().MemoryLosses > 0 })
				}
				if noticed {
					notice()
				}
				mustRefund(t, r, "k", &before, 5)
				notice()
				mustAllow(t, r, "k", 1)
				time.Sleep(time.Second)
				redistest.Eventually(t, "all is charged", func() bool { return l.Stats().UnchargedUnits == 0 })
				if remaining := left(t, r, "k"); remaining != 99 {
					t.Errorf("%v, loss noticed before the refund %t: %d units remain, want 99", a, noticed, remaining)
				}
			})
		}
	}
}

// What is left of a lease when Redis loses its data is given back once.
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
