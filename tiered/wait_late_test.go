package tiered

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
)

// A caller behind another is turned away only if the units of both cannot be free by its deadline, whether it joins
// while the queue waits, or while Redis is asked.
func TestWhoWaitsBehindAnotherIsTurnedAwayOnlyIfItIsLate(t *testing.T) {
	for _, test := range []struct {
		algorithm limit.Algorithm
		cost      int64 // the caller in front wants 5 of 10 units
		within    time.Duration
		late      bool
	}{
		{limit.SlidingLog(), 5, 59 * time.Minute, true},
		{limit.SlidingLog(), 5, 61 * time.Minute, false}, // both fit into the next window
		{limit.SlidingLog(), 6, 119 * time.Minute, true},
		{limit.SlidingLog(), 6, 121 * time.Minute, false},
		{limit.GCRA(), 5, 58 * time.Minute, true},
		{limit.GCRA(), 5, 62 * time.Minute, false},
	} {
		for _, asking := range []bool{false, true} {
			t.Run(fmt.Sprint(test.algorithm, test.cost, test.within, asking), func(t *testing.T) {
				redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
					l := newLimiterOn(t, bubble.Client(t), redistest.Prefix())
					r := newRule(t, l, "r", limit.PerHour(10), Use(test.algorithm))
					mustAllow(t, r, "k", 10)
					ctx, leave := context.WithCancel(t.Context())
					var all sync.WaitGroup
					all.Go(func() { _, _ = r.Wait(ctx, "k", 5) })
					synctest.Wait()
					behind := func() {
						all.Go(func() {
							ctx, cancel := context.WithTimeout(ctx, test.within)
							defer cancel()
							if _, err := r.Wait(ctx, "k", test.cost); errors.Is(err, limit.ErrWouldExceedDeadline) != test.late {
								t.Error(err)
							}
						})
					}
					if asking {
						l.shard.Decider = &askedForOne{l.shard.Decider, func() {
							behind()
							redistest.Eventually(t, "it waits", func() bool { return waiting(l, "r", "k") == 2 })
						}}
						l.lines.release(local.HeldKey{Rule: "r", Key: "k"}) // so that Redis is asked again
					} else {
						behind()
					}
					time.Sleep(time.Second)
					synctest.Wait()
					if n := waiting(l, "r", "k"); n == 2 == test.late {
						t.Errorf("%d wait", n)
					}
					leave()
					all.Wait()
				})
			})
		}
	}
}

// Slots may be released at any time, so nobody who waits for them is turned away before its deadline, not even if it is
// earlier than the time at which Redis is asked again.
func TestWhoWaitsForSlotsIsNotTurnedAway(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		l := newLimiterOn(t, bubble.Client(t), redistest.Prefix())
		jobs := newRule(t, l, "jobs", limit.Concurrent(1))
		held := mustAcquire(t, jobs, "k", 1)
		var all sync.WaitGroup
		for range 2 { // the second one joins while the queue waits
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), acquireAgain/2)
				defer cancel()
				slot, err := jobs.AcquireWait(ctx, "k", 1)
				if err != nil {
					t.Error(err)
				}
				slot.Release()
			})
			synctest.Wait()
		}
		held.Release()
		all.Wait()
	})
}
