package tiered

import (
	"context"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// A settlement is not sent while Redis may still charge the hold's units. Otherwise they would be charged after it, and
// nobody would settle them. The settlements behind it do not wait.
func TestSettlementsAreSentAfterTheLastMomentOfTheirHold(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	r := newRule(t, l, "r", limit.PerMinute(10))
	key := l.key("k")
	later, now := r.cancelling(&key, 1), r.cancelling(&key, 2)
	later.settledFrom = l.now() + int64(time.Hour)
	now.settledFrom = l.now()
	k := &l.holds
	k.waiting = []settlement{later, now}
	if batch := k.sendable(l, false); len(batch) != 1 || batch[0].units != 2 || len(k.waiting) != 1 || k.waiting[0].units != 1 {
		t.Errorf("sent %+v, and kept %+v", batch, k.waiting)
	}
	k.waiting = nil
}

// Law 12: Close makes also settlements that must not be sent yet when it is called. It waits for the last of them.
func TestLaw12CloseAwaitsTheLastMomentOfHolds(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		l := newLimiterOn(t, bubble.Client(t), redistest.Prefix())
		r := newRule(t, l, "r", limit.PerHour(10))
		last, first := mustHold(t, r, "k", 1, time.Hour), mustHold(t, r, "k", 2, time.Hour)
		last.settledFrom, first.settledFrom = l.now()+int64(time.Second), l.now()+int64(10*time.Millisecond)
		l.settle(t.Context(), settlement{Hold: last, sent: true})
		l.settle(t.Context(), settlement{Hold: first, sent: true})
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if c := l.Stats().Holds; c.Settled != 2 || c.Lost != 0 || c.Unsettled != 0 {
			t.Errorf("%+v", c)
		}
	})
}

// Law 12: Close gives up no settlements because one trip fails while Redis does not count as lost.
func TestLaw12CloseSendsSettlementsAgain(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		client, hook := bubble.Client(t), new(ending)
		client.AddHook(hook)
		l := newLimiterOn(t, client, redistest.Prefix(), Deadline(50*time.Millisecond))
		const all = 2 * settledAtOnce
		awaitSending(newRule(t, l, "r", limit.PerHour(1000)), all)
		bubble.Late.Store(int64(100 * time.Millisecond))
		onTime := context.CancelFunc(func() { bubble.Late.Store(0) }) // after the first trip
		hook.end.Store(&onTime)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if c := l.Stats().Holds; c.Settled != all || c.Unsettled != 0 {
			t.Errorf("of %d settlements: %+v", all, c)
		}
		time.Sleep(100 * time.Millisecond) // for the late answer
	})
}

// However many settlements wait, only settledAtOnce of them are sent at the same time. Once all are made, none are left,
// so that the background does not go on looking for more.
func TestSettlementsAreSentInParts(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		l := newLimiterOn(t, bubble.Client(t), redistest.Prefix())
		const all = 2*settledAtOnce + 1
		awaitSending(newRule(t, l, "r", limit.PerHour(1000)), all)
		k := &l.holds
		batch := k.sendable(l, false)
		if len(batch) != settledAtOnce || len(k.waiting) != all-settledAtOnce {
			t.Errorf("%d are sent at the same time, and %d wait on", len(batch), len(k.waiting))
		}
		k.waiting = append(k.waiting, batch...)
		if left := l.sendWaiting(t.Context(), false); left || l.Stats().Holds.Unsettled != 0 {
			t.Errorf("any left: %v, %+v", left, l.Stats().Holds)
		}
	})
}
