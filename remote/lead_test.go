package remote

import (
	"context"
	"testing"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

func waitingCall(rule *Rule, left int64) *call {
	return waiting(newCall(context.Background(), Entry{Key: redistest.Prefix() + "lead", Rule: rule, Cost: 1}), left)
}

// waiting has a call wait, with so many µs left.
func waiting(c *call, left int64) *call {
	c.asked = localTime()
	c.deadline, c.mayLead = c.asked+left, true
	return c
}

func queueOf(calls ...*call) (q queue) {
	for _, c := range calls {
		q.add(c)
	}
	return q
}

// After a failed trip one call goes ahead alone, the one that has come last: if Redis hangs,
// the others were not sent, and cannot have been charged.
func TestOneCallGoesAheadAfterAFailure(t *testing.T) {
	b, _ := newBatcher(t, redistest.Shared(t).Client(t))
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	for failed, want := range map[bool]int{false: 3, true: 1} {
		first, second, last := waitingCall(rule, 1000*ms), waitingCall(rule, 1000*ms), waitingCall(rule, 1000*ms)
		b.mu.Lock()
		b.queue, b.failed, b.inFlight = queueOf(first, second, last), failed, 1
		b.mu.Unlock()
		trip := b.load(nil)
		if len(trip.calls) != want || failed && (trip.calls[0] != last || b.queue.len() != 2 || first.state.Load() != callWaiting) {
			t.Errorf("after a failure %v: %d of 3 calls sent, %d wait", failed, len(trip.calls), b.queue.len())
		}
		b.mu.Lock()
		b.remove(trip)
		b.queue, b.failed, b.inFlight = queue{}, false, 0
		b.mu.Unlock()
	}
}

// Who has little time left does not lead: all on the trip would have no more. A call of its
// own is answered all the same.
func TestLeadersHaveTime(t *testing.T) {
	b, _ := newBatcher(t, redistest.Shared(t).Client(t)) // 10 s
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	for left, leads := range map[int64]bool{9000 * ms: true, 4000 * ms: false} {
		c := waitingCall(rule, left)
		if lead, _, err := b.enqueue(c); !lead || err != nil {
			t.Fatalf("it does not lead: %v", err)
		}
		b.lead(c, false)
		if <-c.done; c.err != nil || c.mayLead != leads {
			t.Errorf("%d ms left: led %v, error %v", left/ms, c.mayLead, c.err)
		}
	}
}
