package tiered

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
)

// full is a Decider that denies everything and counts the questions.
type full struct {
	outage.Decider
	asked atomic.Int64
}

func (f *full) Decide(context.Context, remote.Entry) (remote.Reply, error) {
	f.asked.Add(1)
	return remote.Reply{RetryAfter: time.Second, ResetAfter: time.Second}, nil
}

// Law 7: callers that wait for slots of many keys leave Redis to others. The queues ask less often the more of them
// there are in the fleet, and not all at the same moments. A queue that is alone asks every 50 ms.
func TestLaw7WaitersForSlotsOfManyKeysAskLessOften(t *testing.T) {
	for _, test := range []struct {
		fleet, keys int
		least, most int64 // questions a second
	}{
		{1, 1, 19, 21},
		{2, 1, 19, 21},
		{2, 1000, 5000, 7500}, // every 100 to 200 ms
	} {
		t.Run(fmt.Sprint(test.fleet, " of ", test.keys), func(t *testing.T) {
			redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
				prefix := redistest.Prefix()
				l := newLimiterOn(t, bubble.Client(t), prefix)
				if test.fleet == 2 {
					newLimiterOn(t, bubble.Client(t), prefix)
					redistest.Eventually(t, "there are two", func() bool { return l.FleetSize() == 2 })
				}
				way := &full{Decider: l.shard.Decider}
				l.shard.Decider = way
				jobs := newRule(t, l, "jobs", limit.Concurrent(1))
				ctx, cancel := context.WithCancel(context.Background())
				var all sync.WaitGroup
				defer all.Wait()
				defer cancel()
				for i := range test.keys {
					all.Go(func() { _, _ = jobs.AcquireWait(ctx, fmt.Sprint(i), 1) })
				}
				time.Sleep(time.Second) // until they no longer ask together
				synctest.Wait()
				const seconds, parts = 2, 20
				before, mostInPart := way.asked.Load(), int64(0)
				for range seconds * parts {
					from := way.asked.Load()
					time.Sleep(time.Second / parts)
					synctest.Wait()
					mostInPart = max(mostInPart, way.asked.Load()-from)
				}
				if asked := (way.asked.Load() - before) / seconds; asked < test.least || asked > test.most {
					t.Errorf("%d questions a second", asked)
				}
				if mostInPart > max(2, 2*test.most/parts) {
					t.Errorf("%d questions in a twentieth of a second", mostInPart)
				}
			})
		})
	}
}
