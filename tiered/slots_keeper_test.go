package tiered

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
)

// underWay is a hook that counts the keys of the commands in flight that are about many keys.
type underWay struct {
	watching
	mu              sync.Mutex
	keys, most, all int
}

func (h *underWay) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		const heartbeat = 5
		keys, ok := 0, false
		if args := cmd.Args(); len(args) > 2 {
			keys, ok = args[2].(int)
		}
		if !ok || keys <= heartbeat {
			return next(ctx, cmd)
		}
		h.count(keys)
		defer h.count(-keys)
		return next(ctx, cmd)
	}
}

func (h *underWay) count(keys int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keys, h.most, h.all = h.keys+keys, max(h.most, h.keys+keys), h.all+max(0, keys)
}

// Law 7: however many keys' slots are renewed, no more keys are in flight at the same time than one trip has. The trips
// of decisions would otherwise have to wait for many, and with tens of thousands of keys so would the renewals
// themselves, until their slots are lost.
func TestLaw7RenewalsAreNotSentAtOnce(t *testing.T) {
	t.Parallel()
	client, hook := redistest.Shared(t).Client(t), new(underWay)
	l := newLimiterOn(t, client, redistest.Prefix())
	jobs := newRule(t, l, "jobs", limit.Concurrent(1), SlotTTL(10*time.Minute))
	const keys = 8*maxBatch + 1
	l.slots.closed.Store(true) // stops the keeper from sending statements
	holdMany(jobs, keys)
	client.AddHook(hook)
	statements := l.slots.table.Statements(l.now(), local.RenewAll, l.isReachable)
	if l.sendStatements(t.Context(), statements, l.config.deadline); hook.all != keys-1 || hook.most > maxBatch {
		t.Errorf("of %d keys, %d are renewed with others; at most %d are in flight at the same time, want at most %d", keys, hook.all, hook.most, maxBatch)
	}
}

// Law 13: slots are kept while far more calls wait than Redis can decide in time. Renewals neither wait for these calls
// nor are turned away.
func TestLaw13SlotsAreKeptUnderOverload(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		l := newLimiterOn(t, bubble.Client(t), redistest.Prefix(), Deadline(100*time.Millisecond))
		r := newRule(t, l, "r", limit.PerHour(1_000_000))
		jobs := newRule(t, l, "jobs", limit.Concurrent(1), SlotTTL(time.Second))
		const keys, callers = 5 * maxBatch, 4000
		for i := range keys {
			mustAcquire(t, jobs, strconv.Itoa(i), 1)
		}
		bubble.Late.Store(int64(40 * time.Millisecond))
		until := time.Now().Add(2500 * time.Millisecond) // more than twice the time that slots last
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				for n := 0; time.Now().Before(until); n++ {
					if _, err := r.Allow(t.Context(), fmt.Sprint(i, " ", n)); err != nil {
						t.Error(err)
						return
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		all.Wait()
		stats := l.Stats()
		if stats.Slots != (SlotStats{Units: keys}) {
			t.Errorf("%+v, want %d units and none lost", stats.Slots, keys)
		}
		if missed := stats.Missed.NoRoom + stats.Missed.NotInTime; missed < callers {
			t.Errorf("%d decisions missed Redis: there was no overload", missed)
		}
	})
}
