package remote

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/lua"
)

// Law 13: entries about slots that share a batch are decided, and leave in Redis, what they would alone: whoever holds
// slots of their keys, whichever of them are late, and in particular if a process releases slots of a key and acquires some
// of it at the same time, which takes a path of its own.
func TestLaw13SlotsOfABatchAreDecidedAsIfAlone(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script := NewScript(client)
	const ttl, seeds = time.Minute, 150
	rules := []*Rule{
		newSlotsRule(t, 7, ttl, 1), newSlotsRule(t, 7, ttl, 2), newSlotsRule(t, 7, ttl/2, 1), newSlotsRule(t, 1000, ttl, 1),
	}
	answered := map[string]int{}
	for seed := range uint64(seeds) {
		random := rand.New(rand.NewPCG(seed, 0))
		together, alone := redistest.Prefix(), redistest.Prefix()
		names := []string{"a", "b", "c"}
		now := int64(epoch)
		for range 6 { // trips
			now += []int64{0, 1, 1_000_000, ttl.Microseconds() / 2, ttl.Microseconds(), -1_000_000}[random.IntN(6)]
			var entries []Entry
			add := func(e Entry) {
				e.NotAfter = []int64{0, now - lua.NotAfterStep, now, now + 10_000_000}[min(3, random.IntN(12))]
				entries = append(entries, e)
			}
			for range 4 {
				name, rule := names[random.IntN(len(names))], rules[random.IntN(5)%4]
				if random.IntN(2) == 0 { // what a process with several callers sends
					add(Entry{Key: name, Rule: rule, Operation: lua.Refund, Cost: 1 + random.Int64N(4)})
					add(Entry{Key: name, Rule: []*Rule{rule, rule, rule, rules[3]}[random.IntN(4)], Cost: 1 + random.Int64N(2), Count: 1 + random.Int64N(3)})
					continue
				}
				e := Entry{Key: name, Rule: rule, Cost: []int64{1, 1, 2, 3, 300}[random.IntN(5)]}
				switch random.IntN(8) {
				case 0:
					e.Operation = lua.Peek
				case 1:
					e.Operation = lua.TakeUpTo
				case 2:
					e.Operation = lua.Slots
				case 3:
					e.Operation, e.Cost = lua.Slots, lua.SlotsAsKnown
				case 4:
					e.Operation, e.Cost = lua.Refund, 1
				}
				add(e)
			}
			batch := make([]Entry, len(entries))
			for i, e := range entries {
				e.Key = together + e.Key
				batch[i] = e
			}
			got, err := script.Run(t.Context(), batch, now)
			if err != nil {
				t.Fatal(err)
			}
			for i, e := range entries {
				e.Key = alone + e.Key
				want, err := script.Run(t.Context(), []Entry{e}, now)
				if err != nil {
					t.Fatal(err)
				}
				if got, want := fmt.Sprintf("%+v", got[i]), fmt.Sprintf("%+v", want[0]); got != want {
					t.Fatalf("seed %d, entry %d of %+v: %s; alone: %s", seed, i, entries, got, want)
				}
				answered[fmt.Sprint(e.Operation, got[i].Status)]++
			}
			for _, name := range names {
				got, want := client.Get(t.Context(), together+name).Val(), client.Get(t.Context(), alone+name).Val()
				if got != want {
					t.Fatalf("seed %d: %+v leave %q, alone %q", seed, entries, got, want)
				}
			}
		}
	}
	for _, operation := range []int{lua.Take, lua.Refund} {
		for _, status := range []Status{Allowed, Expired} {
			if answered[fmt.Sprint(operation, status)] == 0 {
				t.Errorf("operation %d was never answered by %v: %v", operation, status, answered)
			}
		}
	}
}
