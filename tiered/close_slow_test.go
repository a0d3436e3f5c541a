package tiered

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
)

// Law 12: Close ends in time and leaves nothing behind, even if a slow Redis, which answers every call, cannot
// process all settlements and releases in that time.
func TestLaw12CloseOfASlowRedisEndsInTime(t *testing.T) {
	for _, test := range []struct {
		what               string
		settlements, slots int
	}{
		{"settlements", maxSettlements, 0},
		{"settlements and slots", maxSettlements, 1_000},
	} {
		t.Run(test.what, func(t *testing.T) {
			redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
				l := newLimiterOn(t, bubble.Client(t), redistest.Prefix(), Deadline(100*time.Millisecond))
				r, jobs := newRule(t, l, "r", limit.PerHour(1000)), newRule(t, l, "jobs", limit.Concurrent(1))
				redistest.Eventually(t, "Redis decides", func() bool { return mustAllow(t, r, "k", 1).Tier == limit.TierRedis })
				bubble.Late.Store(int64(80 * time.Millisecond))
				awaitSending(r, test.settlements)
				holdMany(jobs, test.slots)
				began := time.Now()
				err := l.Close()
				if took := time.Since(began); errors.Is(err, errStillInClient) || took >= l.config.deadline+closeWithin {
					t.Errorf("Close took %v: %v", took, err)
				}
				if c := l.Stats().Holds; c.Unsettled != 0 || c.Settled > int64(test.settlements)/2 {
					t.Errorf("of %d settlements: %+v", test.settlements, c)
				}
			})
		})
	}
}

// Law 12: nothing is left behind when any of several calls of Close has returned. A process that ends then, because
// one of them is deferred in main, would otherwise keep what the others were about to give back.
func TestLaw12EveryCloseWaitsForTheFirst(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		l := newLimiterOn(t, bubble.Client(t), redistest.Prefix(), Deadline(100*time.Millisecond))
		const late = 80 * time.Millisecond
		bubble.Late.Store(int64(late))
		began := time.Now()
		go func() { _ = l.Close() }()
		synctest.Wait()
		if err := l.Close(); err != nil || time.Since(began) < late {
			t.Errorf("the second Close returned after %v: %v", time.Since(began), err)
		}
	})
}

// A function for OnStateChange that does not return, for instance because it calls Close, does not keep Close from
// returning. The error names it as a possible reason.
func TestCloseInOnStateChange(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		const deadline = 100 * time.Millisecond
		var l *Limiter
		ended := make(chan error, 1)
		closes := func(State) { ended <- l.Close() }
		l = newLimiterOn(t, bubble.Client(t), redistest.Prefix(), Deadline(deadline), OnStateChange(closes))
		l.shard.Breaker.ForceOpen(errors.New("lost"))
		began := time.Now()
		err := <-ended
		if took := time.Since(began); took > deadline+closeWithin || !strings.Contains(fmt.Sprint(err), "OnStateChange") {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// holdMany acquires a slot for each of many keys without telling Redis.
func holdMany(r *Rule, keys int) {
	l := r.limiter
	for i := range keys {
		h, _ := l.slots.table.Enter(local.HeldKey{Rule: r.name, Key: strconv.Itoa(i)}, r, r.slotTTL)
		h.Granted(l.now(), l.now()+int64(r.slotTTL), 0, 1, new(local.Slot[*Rule]))
	}
}

// Law 12: Close stops releasing slots when its time is over, however many keys have slots. On a Cluster, each key
// may take a trip of its own.
func TestLaw12CloseReleasesSlotsForALimitedTime(t *testing.T) {
	t.Parallel()
	client, hook := redistest.Shared(t).Client(t), new(ending)
	client.AddHook(hook)
	l := newLimiterOn(t, client, redistest.Prefix(), Deadline(100*time.Millisecond))
	const all = 64 * maxBatch
	holdMany(newRule(t, l, "jobs", limit.Concurrent(1), SlotTTL(10*time.Minute)), all)
	l.slots.closed.Store(true) // stops the keeper from sending statements
	l.slots.table.EndAll(l.now())
	within, cancel := context.WithCancel(t.Context())
	hook.end.Store(&cancel)
	if l.sendDueStatements(within, l.now()); l.slots.table.Keys() < all/2 {
		t.Errorf("after its time was over it released the slots of %d keys", all-l.slots.table.Keys())
	}
}
