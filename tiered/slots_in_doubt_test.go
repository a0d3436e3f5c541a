package tiered

import (
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
)

// newDoubter returns a limiter and a function that puts all keys of which it holds slots in doubt. Redis's answers are
// late by the given time from then on.
func newDoubter(t *testing.T, bubble *redistest.Bubble) (*Limiter, func(late time.Duration)) {
	l := newLimiterOn(t, bubble.Client(t), redistest.Prefix(), Deadline(time.Second), FleetSize(1))
	return l, func(late time.Duration) {
		bubble.Late.Store(int64(late))
		l.slots.table.Doubt(l.now(), func(local.HeldKey) bool { return true })
	}
}

// A group waits for the doubt about one of its keys to end, and leaves nothing behind about the others.
func TestAGroupOfWhichOneKeyIsInDoubt(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		l, doubt := newDoubter(t, bubble)
		first, second := newRule(t, l, "first", limit.Concurrent(4)), newRule(t, l, "second", limit.Concurrent(4))
		slot := mustAcquire(t, second, "k", 1)
		doubt(50 * time.Millisecond)
		grants, ds, err := l.TakeAll(t.Context(), Request{Rule: first, Key: "k", Cost: 1}, Request{Rule: second, Key: "k", Cost: 1})
		if err != nil || grants == nil {
			t.Fatalf("%+v, %v", ds, err)
		}
		slot.Release()
		if err := grants.End(t.Context()); err != nil {
			t.Error(err)
		}
		redistest.Eventually(t, "nothing is held or asked for", func() bool { return l.slots.table.Keys() == 0 })
	})
}

// If the time that the program gave a call ends while the key is in doubt, Redis is not to blame.
func TestSlotsInDoubtWithLittleTime(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		l, doubt := newDoubter(t, bubble)
		r := newRule(t, l, "r", limit.Concurrent(4))
		defer mustAcquire(t, r, "k", 1).Release()
		doubt(500 * time.Millisecond)
		began := time.Now()
		slot, d, err := r.Acquire(DecideBy(t.Context(), began.Add(20*time.Millisecond)), "k", 1)
		if took := time.Since(began); slot != nil || err != nil || d.Tier != limit.TierOverload || took != 20*time.Millisecond {
			t.Errorf("%+v after %v, %v", d, took, err)
		}
		healthy(t, l)
		bubble.Late.Store(0)
	})
}

// A denial says how many units are free, which later limits what this process may acquire without Redis.
func TestADenialOfSlotsMovesTheShare(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		prefix := redistest.Prefix()
		l, there := newLimiterOn(t, bubble.Client(t), prefix, Deadline(100*time.Millisecond)), newLimiterOn(t, bubble.Client(t), prefix)
		redistest.Eventually(t, "there are two", func() bool { return l.FleetSize() == 2 })
		ours, theirs := newRule(t, l, "r", limit.Concurrent(10)), newRule(t, there, "r", limit.Concurrent(10))
		mustAcquire(t, ours, "k", 1)
		mustAcquire(t, theirs, "k", 7)
		if d := mustBeFull(t, ours, "k", 5); d.Remaining != 2 {
			t.Errorf("%+v", d)
		}
		bubble.Late.Store(int64(time.Second))
		for l.State() != Outage {
			_, _, _ = ours.Acquire(t.Context(), "x", 1)
		}
		mustAcquire(t, ours, "k", 1) // half of what was free
		mustBeFull(t, ours, "k", 1)
		bubble.Late.Store(0)
	})
}
