package remote

import (
	"testing"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// A group that is denied leaves a long list of holds, which would be written in place, as it is.
func TestLaw9ADeniedGroupLeavesAListOfHolds(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script := NewScript(client)
	rule, key := newRule(t, limit.PerDay(10_000).WithBurst(10_000), limit.GCRA()), redistest.Prefix()+"held"
	for id := range uint64(30) {
		runAll(t, script, []Entry{holdEntry(key, rule, lua.Hold, 1+id, 5)})
	}
	runAll(t, script, []Entry{holdEntry(key, rule, lua.Settle, 7, 3)}) // frees a line

	one := newRule(t, limit.PerDay(1), limit.GCRA())
	full := Entry{Key: redistest.Prefix() + "full", Rule: one, Cost: 1}
	runAll(t, script, []Entry{full})
	held := holdEntry(key, rule, lua.Hold, 100, 5)
	held.Group, full.Group = 1, 1
	values := func() (all [2]string) {
		for i, name := range []string{key, key + ":holds"} {
			var err error
			if all[i], err = client.Get(t.Context(), name).Result(); err != nil {
				t.Fatal(err)
			}
		}
		return all
	}
	before := values()
	replies := runAll(t, script, []Entry{held, full})
	if replies[0].Status != HeldBack || replies[1].Status != Denied {
		t.Errorf("%+v", replies)
	}
	if values() != before {
		t.Error("a group that was denied has changed the key of its hold")
	}
}

// Entries behind a group may be about the key of its last entry, a hold.
func TestAGroupThatEndsWithAHoldIsFollowedByItsKey(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script := NewScript(client)
	rule := newRule(t, limit.PerDay(1000).WithBurst(1000), limit.GCRA())
	taken := Entry{Key: redistest.Prefix() + "taken", Rule: rule, Cost: 1, Group: 1}
	key := redistest.Prefix() + "held"
	held := holdEntry(key, rule, lua.Hold, 1, 300) // a long cost
	held.Group = 1
	replies := runAll(t, script, []Entry{taken, held, holdEntry(key, rule, lua.Settle, 1, 100), {Key: key, Rule: rule, Operation: lua.Peek, Cost: 1}})
	for i, free := range []int64{999, 700, 900, 900} {
		if replies[i].Status != Allowed || replies[i].Remaining != free {
			t.Errorf("entry %d: %+v, want %d units free", i+1, replies[i], free)
		}
	}
}
