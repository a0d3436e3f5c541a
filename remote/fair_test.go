package remote

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// Law 7: however many calls one key has, and whatever they ask for, a call for another key is sent with the next
// trip or the one after. The hot key's calls can use the capacity of a trip that calls for other keys do not use.
func TestLaw7AHotKeyLeavesRoomForOthers(t *testing.T) {
	const callers, quiet, long = 12_000, 60, 60_000 * ms // a busy machine takes seconds to make so many callers
	gcra, log := newRule(t, limit.PerHour(1000), limit.GCRA()), newRule(t, limit.PerHour(100_000), limit.SlidingLog())
	take := func(rule *Rule, cost func(i int) int64) func(int) *call {
		return func(i int) *call {
			c := waitingCall(rule, long)
			c.entry.Key, c.entry.Cost = "hot", cost(i)
			c.work = c.entry.work()
			return c
		}
	}
	every := func(cost int64) func(int) int64 { return func(int) int64 { return cost } }
	for _, tc := range []struct {
		name    string
		hot     func(i int) *call
		entries int // number of entries in a trip of the hot key's calls alone
		calls   int // least number of calls that leave with the first trip
	}{
		{"of one cost", take(gcra, every(1)), 1, callers},
		{"of two costs", take(gcra, func(i int) int64 { return int64(1 + i%2) }), 2, callers},
		{"of many costs", take(gcra, func(i int) int64 { return int64(1 + i%999) }), 128, 128},
		{"up to a cost", func(int) *call {
			c := take(gcra, every(5))(0)
			c.entry.Operation = lua.TakeUpTo
			return c
		}, 128, 128},
		{"on a log", take(log, every(100)), 1, 999},
		{"on a log, a whole trip each", take(log, every(100_000)), 1, 1},
		{"in groups with a limit that all share", func(i int) *call { return groupOf(gcra, "hot") }, 128, 64},
		{"by groups and alone", func(i int) *call {
			if i%2 == 0 {
				return groupOf(gcra, "hot")
			}
			c := take(gcra, every(5))(0)
			c.entry.Operation = lua.TakeUpTo
			return c
		}, 128, 85},
	} {
		t.Run(tc.name, func(t *testing.T) {
			// The batcher never contacts this address.
			b, _ := newBatcher(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), func(o *Options) { o.Queue, o.Deadline = 2*callers, microseconds(long) })
			b.mu.Lock()
			b.inFlight, b.slow = 1, true // no trip starts by itself
			b.mu.Unlock()
			trip := func() *trip {
				got := b.load(nil, localTime())
				b.mu.Lock()
				b.remove(got)
				b.last = got.cargo
				b.mu.Unlock()
				return got
			}
			for round := range 3 {
				for i := b.queue.len(); i < callers; i++ { // callers that were answered come again
					b.queue.add(tc.hot(i))
				}
				var others []*call
				for i := range quiet {
					c := waitingCall(gcra, long)
					c.entry.Key = fmt.Sprint("quiet ", round, i)
					switch {
					case i%3 == 0:
						c = groupOf(gcra, c.entry.Key)
					case i%3 == 1:
						c.entry.Rule = log
						c.work = c.entry.work()
					}
					others = append(others, c)
					b.queue.add(c)
				}
				for range 2 {
					if got := trip(); len(got.batch.runs) > 128 || got.batch.work > 100_000 {
						t.Errorf("a trip of %d entries, %d units of work", len(got.batch.runs), got.batch.work)
					}
				}
				for i, c := range others {
					if c.state.Load() != callSent {
						t.Fatalf("round %d: call %d of %d still waits after two trips, behind %d", round, i, quiet, b.queue.len())
					}
				}
			}
			b.queue.take(nil)
			for i := range callers {
				b.queue.add(tc.hot(i))
			}
			if got := trip(); len(got.batch.runs) != tc.entries || len(got.calls) < tc.calls {
				t.Errorf("with nobody else there, a trip has %d entries of %d calls, want %d of %d or more", len(got.batch.runs), len(got.calls), tc.entries, tc.calls)
			}
			b.queue.take(nil)
			b.inFlight = 0
		})
	}
}

// Law 7: the calls for a key share entries also when the newest go first. Otherwise a trip would carry one call per
// entry, and Redis would decide the fewest calls just when not all can be served in time.
func TestLaw7CallsShareEntriesWhenTheNewestGoFirst(t *testing.T) {
	const callers, deadline = 1000, 60_000 * ms
	b, _ := newBatcher(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), func(o *Options) { o.Deadline = microseconds(deadline) })
	rule := newRule(t, limit.PerHour(1000), limit.GCRA())
	calls := make([]*call, callers)
	for i := range calls { // the first has waited for 54 s
		waited := int64(callers-i) * 54_000 * ms / callers
		calls[i] = waitingCall(rule, deadline-waited)
		calls[i].began -= waited
		calls[i].entry.Key = "hot"
	}
	b.mu.Lock()
	b.inFlight, b.slow = 1, true // no trip starts by itself
	b.queue = queueOf(calls...)
	b.mu.Unlock()
	trip := b.load(nil, localTime())
	if len(trip.calls) != callers || len(trip.batch.runs) > 5 || trip.calls[0] != calls[callers-1] {
		t.Errorf("a trip has %d entries of %d calls, want those of all %d in 5 entries at most, the newest first", len(trip.batch.runs), len(trip.calls), callers)
	}
	for _, c := range trip.calls { // law 4
		if run := trip.batch.runs[c.run]; run.deadline > c.deadline || c.deadline-run.deadline > deadline/4 {
			t.Fatalf("a call with %d µs left shares an entry with %d", c.deadline-localTime(), run.deadline-localTime())
		}
	}
	b.mu.Lock()
	b.remove(trip)
	b.inFlight = 0
	b.mu.Unlock()
}

// groupOf returns a call for two limits, one of which is shared by all callers.
func groupOf(rule *Rule, key string) *call {
	of := func(key string) Entry { return Entry{Key: key, Rule: rule, Cost: 1, Group: 1} }
	return waiting(new(callPool).group(context.Background(), []Entry{of("all"), of(key)}), 60_000*ms)
}
