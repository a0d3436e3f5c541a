package tiered

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
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
				synctest.Wait()
				for i := range test.keys { // so that all of them ask at the same moment
					l.lines.release(local.HeldKey{Rule: "jobs", Key: fmt.Sprint(i)})
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

// crowded is a Decider that takes 10 ms for each question, and knows how many it had to answer at the same time.
type crowded struct {
	outage.Decider
	asked      atomic.Int64
	mu         sync.Mutex // guards the rest
	asks, most int
}

func (c *crowded) Decide(ctx context.Context, e remote.Entry) (remote.Reply, error) {
	c.asked.Add(1)
	c.mu.Lock()
	c.asks++
	c.most = max(c.most, c.asks)
	c.mu.Unlock()
	time.Sleep(10 * time.Millisecond)
	c.mu.Lock()
	c.asks--
	c.mu.Unlock()
	return c.Decider.Decide(ctx, e)
}

// Laws 6 and 7: callers that begin to wait for many keys at the same moment leave Redis to others, because their queues
// ask in turn. A caller whose turn has not come ends with its context, and with the limiter.
func TestLaws6And7WaitersForManyKeysAskInTurn(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		l := newLimiterOn(t, bubble.Client(t), redistest.Prefix())
		way := &crowded{Decider: l.shard.Decider}
		l.shard.Decider = way
		jobs := newRule(t, l, "jobs", limit.Concurrent(1))
		begin := func(ctx context.Context, kind string, keys int) (results func() (slots, ended, closed int)) {
			var all sync.WaitGroup
			errs := make([]error, keys)
			for i := range keys {
				all.Go(func() { _, errs[i] = jobs.AcquireWait(ctx, fmt.Sprint(kind, i), 1) })
			}
			synctest.Wait()
			return func() (slots, ended, closed int) {
				all.Wait()
				for _, err := range errs {
					switch {
					case err == nil:
						slots++
					case errors.Is(err, context.Canceled):
						ended++
					case errors.Is(err, limit.ErrClosed):
						closed++
					}
				}
				return slots, ended, closed
			}
		}
		const keys = 3 * mostAsking
		ctx, leave := context.WithCancel(t.Context())
		served, left := begin(t.Context(), "served", keys), begin(ctx, "left", keys)
		if n := way.asked.Load(); n != mostAsking {
			t.Errorf("%d questions at once, want %d", n, mostAsking)
		}
		leave()
		began := time.Now()
		if _, ended, _ := left(); ended != keys || time.Since(began) > 0 {
			t.Errorf("the contexts of %d callers ended, and %d noticed it, after %v", keys, ended, time.Since(began))
		}
		if slots, _, _ := served(); slots != keys || time.Since(began) > time.Second {
			t.Errorf("%d of %d callers got their slots, after %v", slots, keys, time.Since(began))
		}
		if way.most > mostAsking {
			t.Errorf("%d questions at the same time", way.most)
		}
		late := begin(t.Context(), "late", keys)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if slots, _, closed := late(); closed < keys-mostAsking || slots+closed != keys {
			t.Errorf("after Close, %d of %d callers got slots and %d learned that it is closed", slots, keys, closed)
		}
	})
}
