package tiered

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// In an outage, callers that wait for slots get all units of the instance's share at once, however many wait.
func TestWaitersGetSlotsAtOnceInAnOutage(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		const waiters, deadline = 40, 100 * time.Millisecond
		l := newLimiterOn(t, bubble.Client(t), redistest.Prefix(), Deadline(deadline))
		r := newRule(t, l, "jobs", limit.Concurrent(waiters))
		other := newRule(t, l, "other", limit.PerSecond(1), OnOutage(Deny))
		all := mustAcquire(t, r, "k", waiters)
		var waiting sync.WaitGroup
		for range waiters {
			waiting.Go(func() {
				if slot, err := r.AcquireWait(t.Context(), "k", 1); slot == nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		bubble.Late.Store(int64(time.Second))
		for l.State() != Outage {
			_, _ = other.Allow(t.Context(), "k")
			time.Sleep(time.Millisecond)
		}
		began := time.Now()
		all.Release()
		waiting.Wait()
		if took := time.Since(began); took > deadline+acquireAgain { // one question may still wait for Redis
			t.Errorf("%d callers waited for %v although all units were free", waiters, took)
		}
		bubble.Late.Store(0)
	})
}
