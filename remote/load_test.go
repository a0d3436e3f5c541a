package remote

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/limit"
)

// Law 7: loading a trip loses no call. Each call is on the trip, or keeps its place in the queue, or has been
// answered, either before or because its time is over. The queue's counts, by which calls are turned away, match
// its calls.
func TestLaw7LoadingLosesNoCall(t *testing.T) {
	rule := newRule(t, limit.PerHour(100_000), limit.SlidingLog())
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // this address is never contacted
	rapid.Check(t, func(t *rapid.T) {
		const deadline = 1000 * ms
		b := NewBatcher(NewScript(client), Options{Deadline: microseconds(deadline), MaxBatch: 40, MaxWork: 60_000, InFlight: 4, Queue: 1000}, Hooks{})
		defer b.Close()
		var calls []*call
		for i := range rapid.IntRange(1, 80).Draw(t, "calls") {
			c := waitingCall(rule, deadline)
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0:
				c = waitingGroup(rule, rapid.IntRange(1, 40).Draw(t, "group"))
			case 1:
				c.entry.Cost = rapid.Int64Range(1, 40_000).Draw(t, "cost")
				c.work = c.entry.work()
			case 2, 3:
				c.entry.Cost = int64(i) // such a call shares no entry
			default:
				c.entry.Key = fmt.Sprint("own ", i)
			}
			waited := int64(80-i) * rapid.SampledFrom([]int64{1, 9}).Draw(t, "waited") * ms
			c.began, c.deadline = c.began-waited, c.deadline-waited
			switch rapid.IntRange(0, 9).Draw(t, "ended") {
			case 0:
				c.claim()
			case 1:
				c.deadline = localTime() - 1
			}
			calls = append(calls, c)
		}
		ended := make(map[*call]bool)
		for _, c := range calls {
			ended[c] = c.claimed()
		}
		b.mu.Lock()
		b.queue, b.inFlight, b.slow = queueOf(calls...), 1, true // no other trip starts
		b.failed = rapid.IntRange(0, 3).Draw(t, "failed") == 0
		b.last.large = rapid.Bool().Draw(t, "large before")
		b.mu.Unlock()
		for range 3 {
			waiting := slices.Clone(b.queue.calls)
			trip := b.load(nil, localTime())
			onTrip := make(map[*call]bool)
			for _, c := range trip.calls {
				if onTrip[c] = true; c.state.Load() != callSent {
					t.Fatal("a call on the trip is not sent")
				}
			}
			entries, large := 0, 0
			for _, c := range b.queue.calls {
				if entries += c.entries(); c.isLarge() {
					large++
				}
			}
			if b.queue.entries != entries || b.queue.large != large {
				t.Fatalf("%d entries and %d large calls are counted, %d and %d wait", b.queue.entries, b.queue.large, entries, large)
			}
			left := slices.DeleteFunc(waiting, func(c *call) bool {
				return onTrip[c] || ended[c] || errors.Is(c.err, ErrNoAnswer)
			})
			if !slices.Equal(left, slices.DeleteFunc(slices.Clone(b.queue.calls), func(c *call) bool { return ended[c] })) {
				t.Fatalf("%d calls wait after the trip of %d, want %d, in order of arrival", b.queue.len(), len(trip.calls), len(left))
			}
			b.mu.Lock()
			b.remove(trip)
			b.failed, b.last = false, trip.cargo
			b.mu.Unlock()
		}
		b.mu.Lock()
		b.queue, b.inFlight = queue{}, 0
		b.mu.Unlock()
	})
}

// Law 12: calls that a trip leaves behind while the batcher is closed end at once.
func TestLaw12CallsLeftBehindByATripEndWithTheBatcher(t *testing.T) {
	b, _ := newBatcher(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), func(o *Options) { o.MaxBatch = 1 })
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	first, second := waitingCall(rule, 1000*ms), waitingCall(rule, 1000*ms)
	second.entry.Key = "another"
	b.mu.Lock()
	b.queue, b.inFlight, b.closed = queueOf(first, second), 1, true
	b.mu.Unlock()
	trip := b.load(nil, localTime())
	if len(trip.calls) != 1 || second.state.Load() != callClaimed || !errors.Is(second.err, limit.ErrClosed) {
		t.Errorf("a trip of %d; the call left behind ended with %v", len(trip.calls), second.err)
	}
	b.mu.Lock()
	b.remove(trip)
	b.inFlight = 0
	b.mu.Unlock()
}
