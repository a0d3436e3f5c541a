package remote

import (
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// Law 4: an entry is charged up to its not-after, and not after it, whichever path of the script decides it.
func TestLaw4AnEntryIsLateAfterItsNotAfter(t *testing.T) {
	script := NewScript(redistest.Shared(t).Client(t))
	rule := newRule(t, limit.PerMinute(100), limit.SlidingLog())
	for late := range int64(2) {
		key := redistest.Prefix() + "k"
		entries := []Entry{
			{Key: key + "1", Rule: rule, Cost: 1},
			{Key: key + "5", Rule: rule, Cost: 1}, // combined with the one before
			{Key: key + "2", Rule: rule, Cost: 1, Operation: lua.TakeUpTo},
			holdEntry(key+"3", rule, lua.Hold, 1, 1),
			{Key: key + "4", Rule: rule, Cost: 1, Group: 1},
		}
		for i := range entries {
			entries[i].NotAfter = epoch
		}
		replies, err := script.Run(t.Context(), entries, epoch+late)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range replies {
			if want := []Status{Allowed, Expired}[late]; r.Status != want {
				t.Errorf("entry %d, %d µs late: %+v", i, late, r)
			}
		}
	}
}

// A hold that follows a hold or a group of the same key, and is followed by an entry of another key, finds its own
// key of holds. An entry beside a hold that was decided straight through knows what it charged.
func TestHoldsInABatchFindTheirKeys(t *testing.T) {
	script := NewScript(redistest.Shared(t).Client(t))
	prefix := redistest.Prefix()
	rule := newRule(t, limit.PerHour(100), limit.SlidingLog())
	take := func(name string, group int) Entry {
		return Entry{Key: prefix + name, Rule: rule, Cost: 1, Group: group}
	}
	runAll(t, script, []Entry{
		holdEntry(prefix+"a", rule, lua.Hold, 1, 1),
		take("b", 1), take("c", 1),
		holdEntry(prefix+"c", rule, lua.Hold, 2, 1),
		holdEntry(prefix+"c", rule, lua.Hold, 3, 1),
		holdEntry(prefix+"d", rule, lua.Hold, 4, 1),
		holdEntry(prefix+"e", rule, lua.Hold, 5, 1),
	})
	for i, name := range []string{"a", "c", "c", "d", "e"} {
		if r := runAll(t, script, []Entry{holdEntry(prefix+name, rule, lua.Settle, uint64(i)+1, 0)})[0]; r.Status != Allowed || r.Granted != 1 {
			t.Errorf("hold %d: %+v", i+1, r)
		}
	}

	up, peek := take("f", 0), take("f", 0)
	up.Operation, peek.Operation = lua.TakeUpTo, lua.Peek
	replies := runAll(t, script, []Entry{up, holdEntry(prefix+"g", rule, lua.Hold, 6, 1), holdEntry(prefix+"f", rule, lua.Hold, 7, 5), peek})
	if r := replies[3]; r.Remaining != 94 {
		t.Errorf("after 6 units were charged: %+v", r)
	}
}

// A reset in a batch does not lose the charge of the entry in front of it, which was made in memory until then.
func TestAResetLeavesTheEntryBefore(t *testing.T) {
	script, prefix := NewScript(redistest.Shared(t).Client(t)), redistest.Prefix()
	rule := newRule(t, limit.PerHour(100), limit.GCRA())
	runAll(t, script, []Entry{
		{Key: prefix + "a", Rule: rule, Operation: lua.TakeUpTo, Cost: 40},
		{Key: prefix + "b", Rule: rule, Operation: lua.Forget, Cost: 1},
	})
	if r := runAll(t, script, []Entry{{Key: prefix + "a", Rule: rule, Operation: lua.Peek, Cost: 1}})[0]; r.Remaining > 61 {
		t.Errorf("after 40 of 100 units were charged: %+v", r)
	}
}

// Law 3: a hold that takes the last room for holds can be settled, also when the entry behind it finds no room.
func TestLaw3TheLastHoldThereIsRoomFor(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script, key := NewScript(client), redistest.Prefix()+"full"
	rule := newRule(t, limit.PerHour(100_000), limit.GCRA())
	runAll(t, script, []Entry{holdEntry(key, rule, lua.Hold, 1, 1)})
	text := client.Get(t.Context(), key+":holds").Val()
	client.Set(t.Context(), key+":holds", text[:15]+strings.Repeat(text[15:], lua.MaxHolds-1), time.Hour)
	replies := runAll(t, script, []Entry{
		{Key: key, Rule: rule, Operation: lua.Peek, Cost: 1}, holdEntry(key, rule, lua.Hold, 2, 7), holdEntry(key, rule, lua.Hold, 3, 8),
	})
	if replies[1].Status != Allowed || replies[2].Status != Denied {
		t.Fatalf("%+v", replies)
	}
	if r := runAll(t, script, []Entry{holdEntry(key, rule, lua.Settle, 2, 0)})[0]; r.Status != Allowed {
		t.Errorf("the last hold: %+v", r)
	}
}

// Law 3: a hold is kept when settlements behind it find nothing to settle.
func TestLaw3AHoldBeforeUnknownSettlements(t *testing.T) {
	script, key := NewScript(redistest.Shared(t).Client(t)), redistest.Prefix()+"unknown"
	rule := newRule(t, limit.PerHour(100), limit.SlidingCounter(4, limit.Strict)) // which settles in memory
	settle, other := holdEntry(key, rule, lua.Settle, 8, 1), holdEntry(key, rule, lua.Settle, 9, 1)
	if !settle.joinHold(&other) {
		t.Fatal("they share no entry")
	}
	replies := runAll(t, script, []Entry{{Key: key, Rule: rule, Operation: lua.Peek, Cost: 1}, holdEntry(key, rule, lua.Hold, 1, 7), settle})
	if replies[1].Status != Allowed {
		t.Fatalf("%+v", replies)
	}
	if r := runAll(t, script, []Entry{holdEntry(key, rule, lua.Settle, 1, 0)})[0]; r.Status != Allowed || r.Granted != 7 {
		t.Errorf("%+v, want 7 units given back", r)
	}
}

// Law 3: a settlement gives back nothing of a charge that the key no longer knows of. The key was lost, and Redis's
// clock stepped back, so that its newest charge is older than the hold.
func TestLaw3AHoldWhoseKeyWasLost(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script := NewScript(client)
	for _, a := range configurations() {
		key, rule := redistest.Prefix()+"lost", newRule(t, limit.PerMinute(10).WithBurst(10), a)
		run := func(at int64, e Entry) Reply {
			t.Helper()
			replies, err := script.Run(t.Context(), []Entry{e}, at)
			if err != nil {
				t.Fatal(err)
			}
			return replies[0]
		}
		run(epoch, holdEntry(key, rule, lua.Hold, 1, 4))
		client.Del(t.Context(), key)
		run(epoch-1, Entry{Key: key, Rule: rule, Cost: 5})
		if r := run(epoch-1, holdEntry(key, rule, lua.Settle, 1, 0)); r.Status != Allowed || r.Granted != 0 || r.Remaining != 5 {
			t.Errorf("%v: %+v, want nothing given back", a, r)
		}
	}
}

// Law 8: a key of which a process states that it holds nothing is gone, as if it had never been used.
func TestLaw8AStatementOfNothingLeavesNoKey(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script, key, rule := NewScript(client), redistest.Prefix()+"stated", newSlotsRule(t, 5, time.Minute, 1)
	for _, units := range []int64{3, 0} {
		if _, err := script.Run(t.Context(), []Entry{{Key: key, Rule: rule, Operation: lua.Slots, Cost: units}}, epoch); err != nil {
			t.Fatal(err)
		}
	}
	if n := client.Exists(t.Context(), key).Val(); n != 0 {
		t.Errorf("the key is there: %q", client.Get(t.Context(), key).Val())
	}
}
