package remote

import (
	"fmt"
	"testing"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// Entries that follow the settlement of all holds of their key are decided as if alone, and leave the same list of holds.
func TestEntriesAfterAllHoldsWereSettled(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script := NewScript(client)
	rule := newRule(t, limit.PerDay(100).WithBurst(100), limit.GCRA())
	take, peek := Entry{Rule: rule, Cost: 1}, Entry{Rule: rule, Operation: lua.Peek, Cost: 1}
	group := holdEntry("", rule, lua.Hold, 8, 5)
	group.Group = 1
	for name, following := range map[string][]Entry{
		"nothing":                  nil,
		"a charge":                 {take},
		"a look":                   {peek},
		"a hold":                   {holdEntry("", rule, lua.Hold, 7, 5)},
		"two holds":                {holdEntry("", rule, lua.Hold, 7, 5), holdEntry("", rule, lua.Hold, 8, 6)},
		"a hold that does not fit": {holdEntry("", rule, lua.Hold, 7, 99)},
		"a hold of what fits":      {holdEntry("", rule, lua.HoldUpTo, 7, 200)},
		"a look, then a hold":      {peek, holdEntry("", rule, lua.Hold, 7, 5)},
		"its own settlement":       {holdEntry("", rule, lua.Settle, 1, 5)},
		"hold, settlement, hold":   {holdEntry("", rule, lua.Hold, 7, 5), holdEntry("", rule, lua.Settle, 7, 4), holdEntry("", rule, lua.Hold, 8, 6)},
		"a group, then a hold":     {peek, group, holdEntry("", rule, lua.Hold, 7, 5)},
		"a prolonged hold":         {holdEntry("", rule, lua.HoldUpTo, 7, 5), holdEntry("", rule, lua.Extend, 7, 0)},
	} {
		for _, joined := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, several settled: %v", name, joined), func(t *testing.T) {
				run := func(key string, together bool) string {
					start := []Entry{holdEntry("", rule, lua.Hold, 1, 10), holdEntry("", rule, lua.Hold, 2, 10)}
					settled := holdEntry("", rule, lua.Settle, 1, 7)
					if other := holdEntry("", rule, lua.Settle, 2, 7); !joined {
						start = start[:1]
					} else if !settled.joinHold(&other) {
						t.Fatal("they share no entry")
					}
					said := ""
					send := func(entries ...Entry) {
						for i := range entries {
							if entries[i].Key == "" {
								entries[i].Key = key
							}
						}
						replies, err := script.Run(t.Context(), entries, epoch)
						if err != nil {
							t.Fatal(err)
						}
						for _, r := range replies {
							said += fmt.Sprintf("%+v\n", r)
						}
					}
					send(start...)
					entries := append([]Entry{settled}, following...)
					entries = append(entries, Entry{Key: key + " another", Rule: rule, Cost: 1})
					if together {
						send(entries...)
					} else {
						for _, e := range entries {
							send(e)
						}
					}
					return said + fmt.Sprintf("list of holds: %x", client.Get(t.Context(), key+":holds").Val())
				}
				if got, want := run(redistest.Prefix()+"together", true), run(redistest.Prefix()+"alone", false); got != want {
					t.Errorf("together:\n%s\nalone:\n%s", got, want)
				}
			})
		}
	}
}

// A trip that settles all holds of several keys, and then looks at each, leaves no list of holds.
func TestLaw8ListsOfHoldsThatATripHasEmptied(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script := NewScript(client)
	rule := newRule(t, limit.PerDay(100).WithBurst(100), limit.GCRA())
	var holds, entries []Entry
	for i := range uint64(3) {
		key := fmt.Sprintf("%s%d", redistest.Prefix(), i)
		holds = append(holds, holdEntry(key, rule, lua.Hold, 1+i, 10))
		entries = append(entries, holdEntry(key, rule, lua.Settle, 1+i, 7), Entry{Key: key, Rule: rule, Operation: lua.Peek, Cost: 1})
	}
	runAll(t, script, holds)
	for i, r := range runAll(t, script, entries) {
		if r.Status != Allowed || r.Remaining != 93 {
			t.Errorf("entry %d: %+v", i, r)
		}
	}
	for _, e := range holds {
		if n, err := client.Exists(t.Context(), e.Key+":holds").Result(); n != 0 || err != nil {
			t.Errorf("%s has a list of holds; %v", e.Key, err)
		}
	}
}
