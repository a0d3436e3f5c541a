package remote

import (
	"context"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/lua"
)

// Law 9: entries of one group are charged all or none, and neighbours of the
// group as if it had come alone.
func TestGroupsAreChargedAllOrNone(t *testing.T) {
	script := NewScript(redistest.Shared(t).Client(t))
	rapid.Check(t, func(t *rapid.T) {
		const keys = 4
		prefix := redistest.Prefix()
		var rules [keys]*Rule
		var references [keys]model.Model
		var capacity [keys]int64
		for i := range keys {
			a := drawAlgorithm.Draw(t, "algorithm")
			l := drawLimit(a).Draw(t, "limit")
			rules[i], capacity[i] = newRule(t, l, a), a.Capacity(l)
			var err error
			if references[i], err = model.New(l, a); err != nil {
				t.Fatal(err)
			}
		}
		now := int64(epoch)
		for range rapid.IntRange(1, 6).Draw(t, "batches") {
			now += rapid.Int64Range(0, 100_000).Draw(t, "gap")
			var entries []Entry
			var keyOf []int
			for group := 1; group <= 3; group++ {
				members := rapid.SliceOfNDistinct(rapid.IntRange(0, keys-1), 1, keys, rapid.ID).Draw(t, "members")
				for _, k := range members {
					keyOf = append(keyOf, k)
					entries = append(entries, Entry{
						Key:   fmt.Sprint(prefix, k),
						Rule:  rules[k],
						Cost:  rapid.Int64Range(1, capacity[k]).Draw(t, "cost"),
						Group: group % 3, // the last "group" is 0: entries on their own
					})
				}
			}
			replies, err := script.Run(context.Background(), entries, now)
			if err != nil {
				t.Fatal(err)
			}
			for from := 0; from < len(entries); {
				to := from + 1
				for entries[from].Group != 0 && to < len(entries) && entries[to].Group == entries[from].Group {
					to++
				}
				fits := true
				for i := from; i < to; i++ {
					fits = fits && references[keyOf[i]].Clone().Decide(now, entries[i].Cost).Allowed
				}
				for i := from; i < to; i++ {
					reference := references[keyOf[i]]
					if !fits {
						reference = reference.Clone() // nothing is charged
					}
					want, got := reference.Decide(now, entries[i].Cost), replies[i]
					switch {
					case fits && got.Status != lua.Allowed,
						!fits && want.Allowed && got.Status != lua.HeldBack,
						!want.Allowed && got.Status != lua.Denied:
						t.Fatalf("entry %d of group %d (fits: %v): status %d, model %+v", i, entries[i].Group, fits, got.Status, want)
					}
					if got.Status != lua.HeldBack && outcome(got) != want {
						t.Fatalf("entry %d: script %+v, model %+v", i, outcome(got), want)
					}
				}
				from = to
			}
		}
	})
}
