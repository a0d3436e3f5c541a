package remote

import (
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// Releases of a key that share a trip are one entry. It precedes acquisitions, so that they find the released
// units. If Redis knows of fewer units than are released, as after a loss of data, the first calls of the entry
// count as those that gave units back.
func TestReleasesShareAnEntryAndComeFirst(t *testing.T) {
	script, key := NewScript(redistest.Shared(t).Client(t)), redistest.Prefix()+"held"
	rule := newSlotsRule(t, 10, time.Minute, 1)
	take := func() *call { return callOf(t.Context(), Entry{Key: key, Rule: rule, Cost: 2}) }
	release := func(units int64) *call {
		return callOf(t.Context(), Entry{Key: key, Rule: rule, Operation: lua.Refund, Cost: units})
	}
	for _, tc := range []struct {
		held     int64
		want     []int64 // units granted to each call
		released int64
	}{
		{10, []int64{2, 3, 2, 4, 2}, 7},
		{4, []int64{2, 3, 2, 1, 2}, 4},
	} {
		runAll(t, script, []Entry{{Key: key, Rule: rule, Operation: lua.Slots, Cost: tc.held}})
		calls := []*call{take(), release(3), take(), release(4), take()}
		var b batch
		for _, c := range calls {
			if b.add(c, newBounds(128, 1000, 0)) != added {
				t.Fatal("there is no room")
			}
		}
		b.finish()
		if len(b.entries) != 2 || b.entries[0].Operation != lua.Refund || b.entries[0].Cost != 7 || b.entries[1].Count != 3 {
			t.Fatalf("entries %+v", b.entries)
		}
		replies := runAll(t, script, b.entries)
		if replies[0].Granted != tc.released {
			t.Errorf("%d units released, want %d", replies[0].Granted, tc.released)
		}
		b.subtract(calls[1], replies) // its caller has left, which changes nothing for the others
		for i, c := range calls {
			if got := b.answer(c, replies)[0].partOf(c); got.Granted != tc.want[i] {
				t.Errorf("%d held: call %d was granted %d, want %d", tc.held, i, got.Granted, tc.want[i])
			}
		}
	}
}

// Refunds under limits with windows name the charge they refund, and do not share an entry.
func TestRefundsOfChargesStayApart(t *testing.T) {
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	var b batch
	for range 2 {
		b.add(callOf(t.Context(), Entry{Key: "k", Rule: rule, Operation: lua.Refund, Cost: 1, Charged: 1}), newBounds(128, 1000, 0))
	}
	if len(b.runs) != 2 {
		t.Errorf("%d entries", len(b.runs))
	}
}

// Law 7: the units that a group writes count toward the bound of its trip, and not of the next one.
func TestLaw7GroupsCountTowardTheWorkOfATrip(t *testing.T) {
	rule, bound := newRule(t, limit.PerHour(100), limit.SlidingLog()), newBounds(128, 100, 0)
	one := func(key string) *call {
		return callOf(t.Context(), Entry{Key: key, Rule: rule, Operation: lua.Take, Cost: 50})
	}
	group := new(callPool).group(t.Context(), []Entry{
		{Key: "a", Rule: rule, Operation: lua.Take, Cost: 30, Group: 1},
		{Key: "b", Rule: rule, Operation: lua.Take, Cost: 30, Group: 1},
	})
	var b batch
	if first, second, third := b.add(group, bound), b.add(one("c"), bound), b.add(group, bound); first != added || second != full || third != full {
		t.Errorf("60 units in a group, 50 more, and 60 more in a group: %v, %v and %v", first, second, third)
	}
	b.reset()
	if first, second := b.add(one("c"), bound), b.add(one("d"), bound); first != added || second != added {
		t.Errorf("50 units and 50 more on the next trip: %v and %v", first, second)
	}
	b.reset()
	fair := newBounds(128, 500, 0).fairly(2) // a key may write 62 units while others wait
	if first, second, third := b.add(group, fair), b.add(group, fair), b.add(group, fair); first != added || second != added || third != keysFull {
		t.Errorf("three groups that write 30 units of the same keys each: %v, %v and %v", first, second, third)
	}
}

// An entry has no more holds or settlements than the script takes.
func TestJoinedHoldsAreBounded(t *testing.T) {
	rule := newRule(t, limit.PerHour(100), limit.SlidingLog())
	for _, operation := range []int{lua.Hold, lua.Settle} {
		next := func(i int) Entry {
			return Entry{Key: "k", Rule: rule, Operation: operation, Cost: 1, Hold: &Hold{ID: uint64(i + 1), Life: time.Minute}}
		}
		e := next(0)
		joined := 1
		for i := 1; i <= lua.MaxHolds; i++ {
			if other := next(i); e.join(&other) {
				joined++
			}
		}
		if joined != lua.MaxHolds {
			t.Errorf("operation %d: %d share an entry, want %d", operation, joined, lua.MaxHolds)
		}
	}
}
