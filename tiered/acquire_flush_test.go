package tiered

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/internal/state"
	"github.com/tierlimit/tierlimit/limit"
)

// Law 13: if Redis is flushed while units are held, the processes report again what they hold after the next
// heartbeat, long before the next renewal. Heartbeats are sent every second. Until Redis knows again, other
// processes may acquire up to n more units. After that, at most n units are held, counting every slot that its
// holder believes in.
func TestLaw13HeldSlotsAreReportedToAFlushedRedis(t *testing.T) {
	t.Parallel()
	const (
		n   = 5
		ttl = time.Minute
		// soon is ten heartbeats, to allow for a loaded machine, and half the time until the next renewal.
		soon = ttl / renewals / 2
	)
	server, prefix := redistest.Start(t), redistest.Prefix()
	client, ctx := server.Client(t), context.Background()
	start := func() *Rule {
		return newRule(t, newLimiterOn(t, server.Client(t), prefix), "jobs", limit.Concurrent(n), SlotTTL(ttl), DenialLife(0))
	}
	a, b, other := start(), start(), start()
	believe := &believers{units: make(map[*Slot]int64)}
	kept := []*Slot{mustAcquire(t, a, "k", 2), mustAcquire(t, a, "k", 1), mustAcquire(t, b, "k", 2)}
	for i, units := range []int64{2, 1, 2} {
		believe.add(kept[i], units)
	}
	mustBeFull(t, other, "k", 1)

	var told, over atomic.Bool
	var granted, denied atomic.Int64
	var contender sync.WaitGroup
	contender.Go(func() {
		for ; !over.Load(); time.Sleep(time.Millisecond) {
			knows := told.Load()
			slot, _, err := other.Acquire(ctx, "k", 1)
			switch {
			case err != nil:
				t.Error(err)
				return
			case slot == nil:
				denied.Add(1)
				continue
			}
			if held := believe.add(slot, 1); held > 2*n || knows && held > n {
				t.Errorf("%d units of %d are held; Redis was told: %v", held, n, knows)
			}
			granted.Add(1)
			believe.remove(slot)
			slot.Release()
		}
	})
	defer contender.Wait()
	defer over.Store(true)

	if err := client.FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	flushed := time.Now()
	key := fmt.Sprintf("%s:{k}:jobs:slots", prefix)
	known := func() (units int64) {
		value, err := client.Get(ctx, key).Bytes()
		if err != nil {
			return 0 // Redis has not been told of any slot yet
		}
		s, err := state.Decode(value, time.Now().UnixMicro(), 0)
		if err != nil {
			t.Fatal(err)
		}
		return s.Used()
	}
	redistest.Eventually(t, "Redis knows again what is held", func() bool { return known() >= n })
	if took := time.Since(flushed); took > soon {
		t.Errorf("that took %v, want at most %v", took, soon)
	} else {
		t.Logf("Redis knows again after %v; %d units were acquired meanwhile", took, granted.Load())
	}
	// The contender may still hold a unit that it acquired earlier.
	redistest.Eventually(t, "no more than the units that are kept", func() bool { return known() == n })
	told.Store(true)
	before := denied.Load()
	redistest.Eventually(t, "the contender is denied", func() bool { return denied.Load() >= before+100 })
	for i, slot := range kept {
		if !slot.Held() {
			t.Errorf("slot %d is lost, although its process lives", i+1)
		}
	}
	believe.remove(kept[1])
	kept[1].Release()
	already := granted.Load()
	redistest.Eventually(t, "what is released is acquired by another", func() bool { return granted.Load() > already })
	kept[0].Release()
	kept[2].Release()
	over.Store(true)
	contender.Wait()
	redistest.Eventually(t, "nothing leaks", func() bool { return client.Exists(ctx, key).Val() == 0 })
}

// A limiter that has only concurrency limits is healthy again one TTL after Redis has lost its data. By then,
// Redis has been told of every slot that is not lost.
func TestSettlingEndsWithConcurrencyLimitsOnly(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), redistest.Prefix(), Deadline(5*time.Second))
	r := newRule(t, l, "jobs", limit.Concurrent(2), SlotTTL(3*time.Second))
	slot := mustAcquire(t, r, "k", 1)
	redistest.Eventually(t, "Redis has a memory that it can lose", func() bool { return l.State() == Healthy && l.FleetSize() == 1 })
	if err := server.Client(t).FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "the loss is noticed", func() bool { return l.State() == Settling })
	redistest.Eventually(t, "Redis decides again", func() bool { return l.State() == Healthy })
	if !slot.Held() {
		t.Error("it is lost, although its process lives")
	}
	mustAcquire(t, r, "k", 1)
	mustBeFull(t, r, "k", 1)
}
