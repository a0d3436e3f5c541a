package tiered

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
	"github.com/tierlimit/tierlimit/plan"
)

func mustAcquire(t testing.TB, r *Rule, key string, units int64) *Slot {
	t.Helper()
	slot, d, err := r.Acquire(context.Background(), key, units)
	if err != nil || slot == nil || !d.Allowed || d.Granted != units || d.ChargedAt != 0 || !slot.Held() {
		t.Fatalf("slot %v, %+v, %v", slot, d, err)
	}
	return slot
}

func mustBeFull(t testing.TB, r *Rule, key string, units int64) limit.Decision {
	t.Helper()
	slot, d, err := r.Acquire(context.Background(), key, units)
	if err != nil || slot != nil || d.Allowed || d.RetryAfter != acquireAgain {
		t.Fatalf("slot %v, %+v, %v", slot, d, err)
	}
	return d
}

// Law 7: a slot keeps no more bytes of a long key in memory than Redis does.
func TestLaw7SlotsKeepNoLongKeys(t *testing.T) {
	r := newRule(t, newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix()), "jobs", limit.Concurrent(1))
	slot := mustAcquire(t, r, strings.Repeat("k", limit.MaxKey), 1)
	defer slot.Release()
	if original, name := len(slot.key.original), len(slot.key.name); original > 0 || name == 0 || name > 100 {
		t.Errorf("a slot keeps %d and %d bytes of its key", original, name)
	}
}

func TestAcquireAndRelease(t *testing.T) {
	client, prefix := redistest.Shared(t).Client(t), redistest.Prefix()
	here, there := newLimiterOn(t, client, prefix), newLimiterOn(t, client, prefix)
	a, b := newRule(t, here, "jobs", limit.Concurrent(3)), newRule(t, there, "jobs", limit.Concurrent(3), DenialLife(0))
	one, two := mustAcquire(t, a, "k", 1), mustAcquire(t, b, "k", 2)
	mustBeFull(t, a, "k", 1)
	mustBeFull(t, b, "k", 1)
	mustAcquire(t, a, "other", 3)
	select {
	case <-one.Lost():
		t.Error("it is lost")
	default:
	}
	two.Release()
	two.Release() // does nothing
	if two.Held() {
		t.Error("it is held after its release")
	}
	<-two.Lost()
	if d, err := b.Peek(context.Background(), "k", 3); err != nil || d.Allowed || d.Remaining != 2 {
		t.Errorf("one of three is held: %+v, %v", d, err)
	}
	mustAcquire(t, b, "k", 2)
	if held := here.Stats().Slots.Units; held != 4 {
		t.Errorf("%d units are held here", held)
	}
	if err := there.Close(); err != nil { // law 12
		t.Fatal(err)
	}
	here.denials.Forget(a.limiter.hasher.Hash("k")^a.denialSalt, here.now())
	mustAcquire(t, a, "k", 2)
}

// A denial is remembered only for a short time, because slots may be released at any time. After that time, or at
// once after a release by this process, Redis is asked again.
func TestDenialsOfSlotsAreShortLived(t *testing.T) {
	client, prefix := redistest.Shared(t).Client(t), redistest.Prefix()
	clock := newVirtual()
	here, there := newLimiterOn(t, client, prefix, VirtualClock(clock.now)), newLimiterOn(t, client, prefix, VirtualClock(clock.now))
	a, b := newRule(t, here, "jobs", limit.Concurrent(2)), newRule(t, there, "jobs", limit.Concurrent(2))
	if slotDenialLife > 25*time.Millisecond || acquireAgain > 50*time.Millisecond {
		t.Errorf("docs/concurrency.md says less than %v and %v", slotDenialLife, acquireAgain)
	}
	theirs, ours := mustAcquire(t, b, "k", 1), mustAcquire(t, a, "k", 1)
	if d := mustBeFull(t, a, "k", 1); d.Tier != limit.TierRedis {
		t.Errorf("the first: %+v", d)
	}
	theirs.Release()
	clock.advance(slotDenialLife - time.Microsecond)
	if d := mustBeFull(t, a, "k", 1); d.Tier != limit.TierLocal {
		t.Errorf("within its life: %+v", d)
	}
	clock.advance(time.Microsecond)
	again := mustAcquire(t, a, "k", 1)
	mustBeFull(t, a, "k", 1)
	ours.Release()
	mustAcquire(t, a, "k", 1)
	again.Release()
}

// Waiters are served in order. After a release in this process they are served at once, and after a release in
// another process when they ask again. A waiter that gives up leaves the queue.
func TestAcquireWaitIsFirstComeFirstServed(t *testing.T) {
	client, prefix := redistest.Shared(t).Client(t), redistest.Prefix()
	here, there := newLimiterOn(t, client, prefix), newLimiterOn(t, client, prefix)
	a, b := newRule(t, here, "jobs", limit.Concurrent(1)), newRule(t, there, "jobs", limit.Concurrent(1))
	slot := mustAcquire(t, b, "k", 1)
	const waiters = 5
	served := make(chan int, waiters)
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	all.Go(func() {
		if slot, err := a.AcquireWait(ctx, "k", 1); slot != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("who gives up: %v, %v", slot, err)
		}
	})
	redistest.Eventually(t, "the first one waits", func() bool { return waiting(here, "jobs", "k") == 1 })
	for i := range waiters {
		all.Go(func() {
			slot, err := a.AcquireWait(context.Background(), "k", 1)
			if err != nil {
				t.Error(err)
			}
			served <- i
			slot.Release()
		})
		redistest.Eventually(t, "it waits", func() bool { return waiting(here, "jobs", "k") == i+2 })
	}
	cancel()
	redistest.Eventually(t, "it has left", func() bool { return waiting(here, "jobs", "k") == waiters })
	slot.Release()
	all.Wait()
	for i := range waiters {
		if got := <-served; got != i {
			t.Errorf("number %d was served in place %d", got, i)
		}
	}
	if n, queues := waiting(here, "jobs", "k"), here.lines.forSlots; n != 0 || queues != 0 {
		t.Errorf("%d wait after all were served, in %d queues", n, queues)
	}
	mustAcquire(t, b, "k", 1) // no waiter that had left was given the unit
}

// A process whose callers always wait for units does not starve other processes, although those learn of its
// releases only by asking Redis.
func TestAcquireWaitTakesTurnsWithOtherProcesses(t *testing.T) {
	t.Parallel()
	client, prefix := redistest.Shared(t).Client(t), redistest.Prefix()
	here, there := newLimiterOn(t, client, prefix), newLimiterOn(t, client, prefix)
	a, b := newRule(t, here, "jobs", limit.Concurrent(1)), newRule(t, there, "jobs", limit.Concurrent(1))
	redistest.Eventually(t, "there are two", func() bool { return here.FleetSize() == 2 && there.FleetSize() == 2 })
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for range 4 {
		all.Go(func() {
			for {
				slot, err := a.AcquireWait(ctx, "k", 1)
				if err != nil {
					return
				}
				time.Sleep(200 * time.Millisecond)
				slot.Release()
			}
		})
	}
	redistest.Eventually(t, "all is held", func() bool { return mustPeek(t, b, "k").Remaining == 0 })
	within, stop := context.WithTimeout(context.Background(), 10*turns*acquireAgain)
	defer stop()
	for range 4 {
		slot, err := b.AcquireWait(within, "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		slot.Release()
	}
}

// Law 7: AcquireWait asks no more once its context has ended, also if this process releases units of the key
// each time that it asks. (After a release it asks again at once.)
func TestLaw7AcquireWaitEndsWithItsContext(t *testing.T) {
	server := redistest.Shared(t)
	courier, client := newCourier(t, server)
	prefix := redistest.Prefix()
	l := newLimiterOn(t, client, prefix, Deadline(5*time.Second)) // otherwise a late answer is one more to ask about
	r := newRule(t, l, "jobs", limit.Concurrent(1))
	mustAcquire(t, newRule(t, newLimiterOn(t, server.Client(t), prefix), "jobs", limit.Concurrent(1)), "k", 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	const last = 3
	var asked atomic.Int32
	courier.from(func(send, _ func() error) error {
		switch n := asked.Add(1); {
		case n == last:
			cancel()
			fallthrough
		case n < 10*last: // not forever
			l.lines.release(local.HeldKey{Rule: "jobs", Key: "k"})
		}
		return send()
	})
	if slot, err := r.AcquireWait(ctx, "k", 1); slot != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v, want the context's error", slot, err)
	}
	if n := asked.Load(); n != last {
		t.Errorf("it asked %d times, %d of them after its context had ended", n, n-last)
	}
}

// Calls and options that a limit does not support return, at once, an error that names the rule.
func TestCallsAndOptionsThatSlotsRefuse(t *testing.T) {
	ctx := context.Background()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	jobs, rate := newRule(t, l, "jobs", limit.Concurrent(2)), newRule(t, l, "rate", limit.PerHour(3))
	for name, call := range map[string]func() error{
		"AllowN":    func() error { _, err := jobs.AllowN(ctx, "k", 1); return err },
		"AllowUpTo": func() error { _, err := jobs.AllowUpTo(ctx, "k", 1); return err },
		"Wait":      func() error { _, err := jobs.Wait(ctx, "k", 1); return err },
		"Refund":    func() error { return jobs.Refund(ctx, "k", &limit.Decision{Granted: 1}, 1) },
		"AllowAll":  func() error { _, err := l.AllowAll(ctx, Request{Rule: jobs, Key: "k", Cost: 1}); return err },
		"AllowEach": func() error { _, err := l.AllowEach(ctx, Request{Rule: jobs, Key: "k", Cost: 1}); return err },
		"TakeAll, to hold": func() error {
			_, _, err := l.TakeAll(ctx, Request{Rule: jobs, Key: "k", Cost: 1, Hold: time.Minute})
			return err
		},
		"HoldAll": func() error {
			_, _, err := l.HoldAll(ctx, time.Minute, Request{Rule: jobs, Key: "k", Cost: 1})
			return err
		},
		"Acquire": func() error { _, _, err := rate.Acquire(ctx, "k", 1); return err },
		"AcquireWait": func() error {
			_, err := rate.AcquireWait(ctx, "k", 1)
			return err
		},
	} {
		rule := `rule "jobs"`
		if strings.HasPrefix(name, "Acquire") {
			rule = `rule "rate"`
		}
		if err := call(); !errors.Is(err, limit.ErrNotForLimit) || !strings.Contains(err.Error(), rule) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, option := range map[string]RuleOption{
		"Use": Use(limit.GCRA()), "Need": Need(plan.Need{Above: plan.AtMost(0.1)}), "Lease": Lease(10), "Shadow": Shadow(0.5), "CountDenied": CountDenied(), "HoldLife": HoldLife(time.Minute),
		"a long TTL": SlotTTL(time.Hour), "a short TTL": SlotTTL(time.Millisecond),
	} {
		if _, err := l.Rule("r", limit.Concurrent(2), option); err == nil {
			t.Errorf("%s goes with it", name)
		}
	}
	if _, err := l.Rule("r", limit.PerHour(2), SlotTTL(time.Second)); !errors.Is(err, limit.ErrInvalidOption) {
		t.Errorf("SlotTTL of a window: %v", err)
	}
	if _, _, err := jobs.Acquire(ctx, "k", 3); !errors.Is(err, limit.ErrCostExceedsLimit) {
		t.Errorf("more than there are: %v", err)
	}
	var none *Slot
	none.Release()
	<-none.Lost()
	if none.Held() {
		t.Error("no slot is held")
	}
}

// Slots outlive their TTL while their process renews them. If the process cannot renew a slot, the slot is lost,
// and its holder knows this before Redis gives the units to another process.
func TestLaw13SlotsAreKeptAndLost(t *testing.T) {
	t.Parallel()
	const ttl = 1500 * time.Millisecond
	server, prefix := redistest.Start(t), redistest.Prefix()
	cut := &losing{later: server.Client(t)}
	client := server.Client(t)
	client.AddHook(cut)
	here := newLimiterOn(t, client, prefix, Deadline(400*time.Millisecond))
	a := newRule(t, here, "jobs", limit.Concurrent(1), SlotTTL(ttl), OnOutage(Deny))
	b := newRule(t, newLimiterOn(t, server.Client(t), prefix), "jobs", limit.Concurrent(1), SlotTTL(ttl), DenialLife(0))
	slot := mustAcquire(t, a, "k", 1)
	for began := time.Now(); time.Since(began) < 2*ttl && slot.Held(); time.Sleep(time.Millisecond) {
		if taken, _, err := b.Acquire(context.Background(), "k", 1); err != nil || taken != nil && slot.Held() {
			t.Fatalf("both hold it, %v", err)
		}
	}
	if !slot.Held() {
		t.Fatal("it is lost, although its process lives")
	}
	cut.part.Store(1000) // no command is answered, although some of them are run
	var taken *Slot
	redistest.Eventually(t, "another one gets it", func() bool {
		var err error
		if taken, _, err = b.Acquire(context.Background(), "k", 1); err != nil {
			t.Fatal(err)
		}
		if taken != nil && slot.Held() {
			t.Fatal("both hold it")
		}
		return taken != nil
	})
	<-slot.Lost()
	slot.Release() // does not affect the slot of the other process
	cut.part.Store(0)
	cut.late.Wait()
	redistest.Eventually(t, "Redis knows what is held", func() bool { return here.slots.table.Keys() == 0 && here.State() == Healthy })
	if !taken.Held() {
		t.Fatal("it is lost, although its process lives")
	}
	mustBeFull(t, a, "k", 1)
	if lost := here.Stats().Slots.Lost; lost != 1 {
		t.Errorf("%d slots were lost", lost)
	}
}

// A slot's channel is closed when the slot is lost, even while Redis hangs and this process waits for an answer
// until its deadline.
func TestLaw13LostIsClosedWhileRedisHangs(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), redistest.Prefix(), Deadline(5*time.Second))
	r := newRule(t, l, "jobs", limit.Concurrent(1), SlotTTL(time.Second), OnOutage(Deny))
	slot := mustAcquire(t, r, "k", 1)
	server.Pause()
	redistest.Eventually(t, "it is lost", func() bool { return !slot.Held() })
	select {
	case <-slot.Lost():
	case <-time.After(time.Second):
		t.Error("its holder is not told within a second")
	}
	server.Resume()
}

// Slots are renewed in time even if the process had only rules with a longer TTL before.
func TestLaw13SlotsOfAShorterTTLAreKept(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		l := newLimiterOn(t, bubble.Client(t), redistest.Prefix())
		kept := mustAcquire(t, newRule(t, l, "long", limit.Concurrent(1), SlotTTL(10*time.Minute)), "k", 1)
		synctest.Wait() // the next renewal of this slot is now due in some minutes
		const ttl = time.Second
		slot := mustAcquire(t, newRule(t, l, "short", limit.Concurrent(1), SlotTTL(ttl)), "k", 1)
		time.Sleep(3 * ttl)
		if !slot.Held() || !kept.Held() {
			t.Error("it is lost, although its process lives")
		}
	})
}

// Law 12: Close releases all slots, even if an answer is late meanwhile.
func TestLaw12CloseReleasesSlotsWhenAnswersAreLate(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		const deadline = 200 * time.Millisecond
		client, prefix := bubble.Client(t), redistest.Prefix()
		l := newLimiterOn(t, client, prefix, Deadline(deadline))
		r := newRule(t, l, "jobs", limit.Concurrent(1), SlotTTL(10*time.Minute))
		const slots = 3 * maxBatch
		for i := range slots {
			mustAcquire(t, r, fmt.Sprint(i), 1)
		}
		bubble.Late.Store(int64(deadline * 5 / 4))
		time.AfterFunc(deadline/2, func() { bubble.Late.Store(0) })
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		left, err := client.Keys(context.Background(), prefix+":*:slots").Result()
		if err != nil || len(left) > 0 {
			t.Errorf("%d of %d keys are left, %v", len(left), slots, err)
		}
	})
}

// Close logs the number of keys whose slots it could not release. Keys whose slots are released are not counted.
func TestCloseLogsWhatItCannotRelease(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		var log strings.Builder
		l := newLimiterOn(t, bubble.Client(t), redistest.Prefix(), Deadline(50*time.Millisecond), Logger(slog.New(slog.NewTextHandler(&log, nil))))
		r := newRule(t, l, "jobs", limit.Concurrent(1))
		mustAcquire(t, r, "released", 1).Release()
		mustAcquire(t, r, "a", 1)
		mustAcquire(t, r, "b", 1)
		bubble.Late.Store(int64(time.Second))
		_ = l.Close() // Close cannot take this instance out of the fleet either
		if !strings.Contains(log.String(), "slots could not be released") || !strings.Contains(log.String(), "keys=2") {
			t.Errorf("logged %s", log.String())
		}
	})
}

// After Redis has lost data about slots, this process reports again what is held.
func TestSlotsAreReportedAgain(t *testing.T) {
	t.Parallel()
	client, prefix := redistest.Shared(t).Client(t), redistest.Prefix()
	l := newLimiterOn(t, client, prefix)
	r := newRule(t, l, "jobs", limit.Concurrent(5), SlotTTL(3*time.Second), DenialLife(0))
	slot := mustAcquire(t, r, "k", 2)
	known := func() int64 {
		d, err := r.Peek(context.Background(), "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		return 5 - d.Remaining
	}
	for name, forget := range map[string]func() error{
		"a key is gone": func() error {
			return client.Del(context.Background(), fmt.Sprintf("%s:{k}:jobs:slots", prefix)).Err()
		},
		"a reset": func() error { return r.Reset(context.Background(), "k") },
	} {
		if err := forget(); err != nil {
			t.Fatal(err)
		}
		redistest.Eventually(t, name+", and it is told again", func() bool { return known() == 2 })
	}
	if !slot.Held() {
		t.Fatal("it is lost, although its process lives")
	}
	mustAcquire(t, r, "k", 3)
	mustBeFull(t, r, "k", 1)
}

// Law 11: in an outage, a process keeps its slots, acquires units up to its share, and reports them to Redis afterwards.
// Under the policy Deny it acquires nothing.
func TestLaw11SlotsInAnOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), redistest.Prefix(), Deadline(200*time.Millisecond))
	const ttl = 2 * time.Second
	r := newRule(t, l, "jobs", limit.Concurrent(4), SlotTTL(ttl))
	strict, open := newRule(t, l, "strict", limit.Concurrent(4), OnOutage(Deny)), newRule(t, l, "open", limit.Concurrent(1), OnOutage(Allow))
	kept := mustAcquire(t, r, "k", 1)
	server.Kill()
	killed := time.Now()
	redistest.Eventually(t, "the outage is noticed", func() bool {
		if slot, _, _ := r.Acquire(context.Background(), "x", 1); slot != nil && l.State() != Outage {
			slot.Release()
		}
		return l.State() == Outage
	})
	redistest.Eventually(t, "its TTL has passed since anybody could tell Redis of it", func() bool { return time.Since(killed) > ttl })
	if !kept.Held() {
		t.Error("what was held is lost")
	}
	more := mustAcquire(t, r, "k", 3) // the share is the whole limit, as there is no other instance
	if d := mustBeFull(t, r, "k", 1); d.Tier != limit.TierFallback {
		t.Errorf("more than its share: %+v", d)
	}
	more.Release()
	mustAcquire(t, r, "k", 2)
	if slot, d, err := strict.Acquire(context.Background(), "k", 1); slot != nil || d.Allowed || d.RetryAfter != outage.ProbeEvery || err != nil {
		t.Errorf("of policy Deny: %v, %+v, %v", slot, d, err)
	}
	for range 2 { // without a limit, but nobody is told of more units than the limit has
		if slot, d, err := open.Acquire(context.Background(), "k", 1); slot == nil || d.Remaining > 1 || err != nil {
			t.Errorf("of policy Allow: %v, %+v, %v", slot, d, err)
		}
	}
	server.Restart()
	redistest.Eventually(t, "Redis is back and knows", func() bool {
		d, err := r.Peek(context.Background(), "k", 1)
		return err == nil && d.Tier == limit.TierRedis && d.Remaining == 1
	})
}

// Law 13: in an outage, each slot of a key is kept or lost according to the policy of the rule that acquired it,
// whichever rule used the key last. Otherwise, another process could get units in which a holder under Deny still
// believes.
func TestLaw13EachSlotIsKeptByItsPolicy(t *testing.T) {
	for _, lastIsStrict := range []bool{false, true} {
		redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
			const ttl = 3 * time.Second
			l := newLimiterOn(t, bubble.Client(t), redistest.Prefix(), Deadline(100*time.Millisecond))
			r := newRule(t, l, "jobs", limit.Concurrent(8), SlotTTL(ttl))
			strict, err := r.WithOutage(Deny)
			if err != nil {
				t.Fatal(err)
			}
			kept, lost := mustAcquire(t, r, "k", 1), mustAcquire(t, strict, "k", 2)
			if !lastIsStrict {
				mustAcquire(t, r, "k", 1).Release()
			}
			bubble.Late.Store(int64(time.Second))
			for l.State() != Outage {
				if slot, _, err := strict.Acquire(t.Context(), "x", 1); slot != nil || err != nil {
					t.Fatalf("%v, %v", slot, err)
				}
			}
			// Peek returns the same decision as Acquire.
			_, d, err := strict.Acquire(t.Context(), "x", 1)
			if p, peeked := strict.Peek(t.Context(), "x", 1); err != nil || peeked != nil || p != d {
				t.Errorf("%+v, %v; a peek: %+v, %v", d, err, p, peeked)
			}
			time.Sleep(ttl)
			if !kept.Held() || lost.Held() {
				t.Errorf("after the TTL, under Approximate it is held: %v, under Deny: %v", kept.Held(), lost.Held())
			}
			select {
			case <-lost.Lost():
			default:
				t.Error("its holder is not told")
			}
			bubble.Late.Store(0)
			time.Sleep(3 * ttl)
			if d, err := r.Peek(t.Context(), "k", 1); err != nil || d.Tier != limit.TierRedis || d.Remaining != 7 || !kept.Held() {
				t.Errorf("%+v, %v: Redis does not know what is held, %v", d, err, kept.Held())
			}
			if slots := l.Stats().Slots; slots != (SlotStats{Units: 1, Lost: 1}) {
				t.Errorf("%+v", slots)
			}
		})
	}
}

// In virtual time, slots are held until they are released, however far the clock is moved.
func TestSlotsInVirtualTime(t *testing.T) {
	clock := newVirtual()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), VirtualClock(clock.now))
	r := newRule(t, l, "jobs", limit.Concurrent(2))
	slot := mustAcquire(t, r, "k", 1)
	clock.advance(time.Hour)
	mustAcquire(t, r, "k", 1)
	mustBeFull(t, r, "k", 1)
	if slot.Release(); slot.Held() {
		t.Error("it is held")
	}
	mustAcquire(t, r, "k", 1)
}

// A rule on a dry run always returns a slot, and holds units only for slots that fit. A slot that does not fit ends
// like any other when it is released: a goroutine may wait for its end.
func TestAcquireOnADryRun(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	r := newRule(t, l, "jobs", limit.Concurrent(1), DryRun())
	var slots []*Slot
	for i := range 2 {
		grants, ds, err := l.TakeAll(context.Background(), Request{Rule: r, Key: "k", Cost: 1})
		if err != nil || !grants[0].Slot.Held() || !ds[0].Allowed || ds[0].WouldDeny != (i == 1) {
			t.Errorf("%v, %+v, %v", grants, ds, err)
		}
		slots = append(slots, grants[0].Slot)
	}
	if units := l.Stats().Slots.Units; units != 1 {
		t.Errorf("%d units are held", units)
	}
	for i, slot := range slots {
		select {
		case <-slot.Lost():
			t.Errorf("slot %d is lost", i)
		default:
		}
		slot.Release()
		slot.Release() // does nothing
		if slot.Held() {
			t.Errorf("slot %d is held after its release", i)
		}
		select {
		case <-slot.Lost():
		case <-time.After(10 * time.Second):
			t.Errorf("slot %d has not ended", i)
		}
	}
}

// A rule on a dry run stops nothing: its slots are held until they are released, even if their units are lost.
func TestSlotsThatAreLostOnADryRun(t *testing.T) {
	redis := redistest.Start(t)
	l := newLimiterOn(t, redis.Client(t), redistest.Prefix())
	r := newRule(t, l, "jobs", limit.Concurrent(1), DryRun(), OnOutage(Deny), SlotTTL(100*time.Millisecond))
	slot, _, err := r.Acquire(context.Background(), "k", 1)
	if err != nil || l.Stats().Slots.Units != 1 {
		t.Fatalf("%+v, %v", slot, err)
	}
	redis.Kill()
	redistest.Eventually(t, "the units are lost", func() bool { return l.Stats().Slots.Lost == 1 })
	select {
	case <-slot.Lost():
		t.Error("the slot has ended")
	default:
	}
	if !slot.Held() {
		t.Error("the slot is not held")
	}
	slot.Release()
	<-slot.Lost()
	if slot.Held() {
		t.Error("the slot is held after its release")
	}
}

// The metrics count the decisions and errors of Acquire, as they do for other calls.
func TestAcquireIsCounted(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	r := newRule(t, l, "jobs", limit.Concurrent(1))
	defer mustAcquire(t, r, "k", 1).Release()
	mustBeFull(t, r, "k", 1)
	if _, _, err := r.Acquire(t.Context(), "", 1); err == nil {
		t.Error("an empty key")
	}
	granted := counted(l, "jobs", func(s TierStats) uint64 { return s.Allowed })
	if denied, errs := counted(l, "jobs", deniedOf), ruleStats(l, "jobs").Errors; granted != 1 || denied != 1 || errs.Invalid != 1 {
		t.Errorf("%d grants, %d denials, errors %+v; want one of each", granted, denied, errs)
	}
}
