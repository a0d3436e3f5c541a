package remote

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// Law 9: calls and groups of calls that share a batch are answered as if each had been made alone. Calls that share
// keys count in the order of their arrival, except that releases come first. The batch does not report units that
// were granted to callers that have left.
func TestLaw9GroupsOfABatchAreAsIfAlone(t *testing.T) {
	script := NewScript(redistest.Shared(t).Client(t))
	rules := []*Rule{
		newRule(t, limit.PerHour(6), limit.SlidingLog()),
		newRule(t, limit.PerHour(8), limit.GCRA()),
		newRule(t, limit.PerHour(9), limit.FixedWindow()),
		newSlotsRule(t, 5, time.Minute, 1),
	}
	type made struct {
		*call
		alone   []Entry
		of      [][2]int
		arrived int
	}
	releases := func(m made) bool { return m.group == nil && m.entry.releases() }
	rapid.Check(t, func(t *rapid.T) {
		batched, alone := redistest.Prefix(), redistest.Prefix()
		limited := func(t *rapid.T) [2]int { // draws a rule and a key
			return [2]int{rapid.IntRange(0, len(rules)-1).Draw(t, "rule"), rapid.IntRange(0, 1).Draw(t, "key")}
		}
		entry := func(prefix string, of [2]int, operation int, cost int64, group int) Entry {
			return Entry{Key: fmt.Sprint(prefix, of[0], " ", of[1]), Rule: rules[of[0]], Operation: operation, Cost: cost, Group: group}
		}
		var calls []made
		var b batch
		for range 2 { // batches one after another, on the same keys
			b.reset()
			calls = calls[:0]
			for i := range rapid.IntRange(1, 12).Draw(t, "calls") {
				m := made{arrived: i}
				operation, cost := rapid.SampledFrom([]int{0, 0, lua.Take, lua.TakeUpTo, lua.Peek}).Draw(t, "operation"), rapid.Int64Range(1, 4).Draw(t, "cost")
				if group := rapid.IntRange(0, 2).Draw(t, "group"); group == 0 {
					m.of = [][2]int{limited(t)}
					if rules[m.of[0][0]].slots {
						operation = rapid.SampledFrom([]int{lua.Take, lua.Refund}).Draw(t, "acquire or release")
					}
					m.call = callOf(t.Context(), entry(batched, m.of[0], operation, cost, 0))
					m.alone = []Entry{entry(alone, m.of[0], operation, cost, 0)}
				} else {
					m.of = rapid.SliceOfNDistinct(rapid.Custom(limited), 1, 4, rapid.ID).Draw(t, "keys")
					var entries []Entry
					for _, of := range m.of {
						entries = append(entries, entry(batched, of, 0, cost, group-1))
						m.alone = append(m.alone, entry(alone, of, 0, cost, group-1))
					}
					m.call = new(callPool).group(t.Context(), entries)
				}
				if b.add(m.call, newBounds(128, 10_000, 0)) != added {
					t.Fatal("there is no room")
				}
				calls = append(calls, m)
			}
			b.finish()
			place := func(m made) int32 { return b.runs[m.run].at }
			for j, later := range calls {
				for _, earlier := range calls[:j] {
					shares := slices.ContainsFunc(later.of, func(of [2]int) bool { return slices.Contains(earlier.of, of) })
					if shares && !releases(later) && place(later) < place(earlier) && (later.call.place == 0 || earlier.group != nil) {
						t.Fatalf("call %d is made before call %d", later.arrived, earlier.arrived)
					}
				}
			}
			replies, err := script.Run(t.Context(), b.entries, epoch)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range calls {
				if m.arrived%4 == 3 { // its caller has left
					b.subtract(m.call, replies)
				}
			}
			slices.SortStableFunc(calls, func(a, c made) int { return cmp.Or(cmp.Compare(place(a), place(c)), cmp.Compare(a.place, c.place)) })
			granted := int64(0)
			for _, m := range calls {
				want, err := script.Run(t.Context(), m.alone, epoch)
				if err != nil {
					t.Fatal(err)
				}
				if m.arrived%4 == 3 {
					continue
				}
				for i, got := range b.answer(m.call, replies) {
					if m.group == nil {
						got = got.partOf(m.call)
					}
					if releases(m) {
						if got.Granted != want[i].Granted {
							t.Fatalf("call %d released %d units, alone %d", m.arrived, got.Granted, want[i].Granted)
						}
						continue
					}
					if w := want[i]; got.Status != w.Status || got.Fitted != w.Fitted || got.Granted != w.Granted || got.Remaining != w.Remaining ||
						got.RetryAfter != w.RetryAfter || got.NextAfter != w.NextAfter {
						t.Fatalf("entry %d of call %d: %+v, alone %+v", i, m.arrived, got, w)
					}
					granted += got.Granted
				}
			}
			for i, r := range replies {
				if !b.entries[i].releases() {
					granted -= r.Granted
				}
			}
			if granted != 0 {
				t.Fatalf("callers who are there were granted %d units more than are reported", granted)
			}
		}
	})
}
