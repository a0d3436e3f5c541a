package remote

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

func waitingGroup(rule *Rule, entries int) *call {
	group := make([]Entry, entries)
	for i := range group {
		group[i] = Entry{Key: fmt.Sprint("group", i), Rule: rule, Cost: 1, Group: 1}
	}
	return waiting(new(callPool).group(context.Background(), group), 10_000*ms)
}

// Law 7: large groups delay other calls by one trip, however many groups there are, and no call starves.
func TestLaw7LargeGroupsDelayOthersByATrip(t *testing.T) {
	b, _ := newBatcher(t, redistest.Shared(t).Client(t), func(o *Options) { o.MaxBatch = 100 })
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	var groups [4]*call
	for i := range groups {
		groups[i] = waitingGroup(rule, 90)
	}
	small := waitingGroup(rule, 5)
	var singles []*call
	for i := range 20 {
		c := waitingCall(rule, 10_000*ms)
		c.entry.Key = fmt.Sprint("single", i)
		singles = append(singles, c)
	}
	b.mu.Lock()
	b.queue, b.inFlight = queueOf(append(append(groups[:3:3], singles[:10]...), small, groups[3])...), 1
	b.slow = true // no other trip starts
	b.mu.Unlock()
	for i, want := range [][]*call{
		append([]*call{groups[0]}, singles[:10]...), // the single calls fit beside the first group
		{small},                  // after a large group, other calls go first
		{groups[1], singles[10]}, // the single call has waited for one group
		singles[11:],             // these calls do not wait for a second group
		{groups[2]},
		{groups[3]}, // there are no other calls
	} {
		switch i { // calls that come later
		case 2:
			b.queue.add(singles[10])
		case 3:
			for _, c := range singles[11:] {
				b.queue.add(c)
			}
		}
		got := b.load(nil, localTime())
		if !slices.Equal(got.calls, want) {
			t.Fatalf("trip %d carries %d calls: %v, want %d: %v", i, len(got.calls), got.calls, len(want), want)
		}
		b.mu.Lock()
		b.remove(got)
		b.last = got.cargo
		b.mu.Unlock()
	}
	if b.queue.len() != 0 || b.queue.entries != 0 || b.queue.large != 0 {
		t.Errorf("the queue has %d calls, %d entries, %d groups", b.queue.len(), b.queue.entries, b.queue.large)
	}
	b.inFlight = 0
}

// A call is large from largeGroup entries or largeWork units of work on.
func TestLargeCalls(t *testing.T) {
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	for _, c := range []struct {
		entries int
		work    int64
		large   bool
	}{{largeGroup - 1, largeWork - 1, false}, {largeGroup, 1, true}, {2, largeWork, true}} {
		one := waitingGroup(rule, c.entries)
		one.work = c.work
		if one.isLarge() != c.large {
			t.Errorf("a call of %d entries with %d units of work is large: %v", c.entries, c.work, !c.large)
		}
	}
}

// Law 7: whether there is room depends on the number of waiting entries, not on the number of calls. So groups take
// no more room from other calls than they need.
func TestLaw7RoomIsCountedInEntries(t *testing.T) {
	b, _ := newBatcher(t, redistest.Shared(t).Client(t), func(o *Options) { o.Deadline, o.Queue = microseconds(50*ms), 100_000 })
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	b.mu.Lock()
	b.inFlight, b.slow = 1, true // no trip starts
	for i := range int64(60) {   // full trips, each with one group
		b.room.ended(localTime()+i*ms, ms, 128, true, 50*ms)
	}
	b.room.full += 60_000 * ms // the full trips count for as long as the test takes on a busy machine
	b.mu.Unlock()
	fits := 0 // number of groups
	for range 100 {
		group := waitingGroup(rule, 128)
		group.deadline += 60_000 * ms // the group waits until the end of the test
		if _, _, err := b.enqueue(group); err == nil {
			fits++
		}
	}
	if fits < 38 || fits > 42 { // 0.8 of 50 ms
		t.Errorf("%d groups wait that take a millisecond each, with a deadline of 50", fits)
	}
	b.Close()
	b, _ = newBatcher(t, redistest.Shared(t).Client(t), func(o *Options) { o.Deadline, o.Queue = microseconds(50*ms), 100_000 })
	b.mu.Lock()
	b.inFlight, b.slow = 1, true
	for i := range int64(60) {
		b.room.ended(localTime()+i*ms, ms, 128, true, 50*ms)
	}
	b.room.full += 60_000 * ms
	b.mu.Unlock()
	for range 7 {
		if _, _, err := b.enqueue(waitingGroup(rule, 128)); err != nil {
			t.Error(err)
		}
	}
	for i := range 1000 {
		if _, _, err := b.enqueue(waitingCall(rule, 50*ms)); err != nil {
			t.Fatalf("behind 7 groups there was room for %d calls only: %v", i, err)
		}
	}
}

// The queue's counts match its calls.
func TestQueueCounts(t *testing.T) {
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		var model []*call
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0, 1:
				c := waitingCall(rule, 1000*ms)
				if n := rapid.IntRange(0, 64).Draw(t, "group"); n > 0 {
					c = waitingGroup(rule, n)
				}
				q.add(c)
				model = append(model, c)
			case 2:
				taken := q.take(nil)
				if q.len() != 0 || q.entries != 0 || q.large != 0 {
					t.Fatalf("after all were taken: %+v", q)
				}
				c := waitingCall(rule, 1000*ms)
				q.add(c)
				q.putFirst(taken)
				model = append(model, c)
			case 3:
				for _, c := range model {
					if rapid.Bool().Draw(t, "claimed") {
						c.claim()
					}
				}
				q.dropClaimed()
				model = slices.DeleteFunc(model, (*call).claimed)
			}
		}
		entries, large := 0, 0
		for _, c := range model {
			entries += c.entries()
			if c.isLarge() {
				large++
			}
		}
		if !slices.Equal(q.calls, model) || q.entries != entries || q.large != large {
			t.Errorf("%d calls, %d entries, %d large ones; want %d, %d, %d", q.len(), q.entries, q.large, len(model), entries, large)
		}
	})
}
