package remote

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/internal/state"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// A long list of holds is written in place. Whatever order holds are opened and settled in, alone or together, the list
// has exactly the open ones, takes little more space than they do, lasts until the last of them is over (law 8), and is
// deleted when none is left.
func TestManyOpenHolds(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script := NewScript(client)
	for _, a := range []limit.Algorithm{limit.GCRA(), limit.SlidingCounter(16, limit.Strict), limit.SlidingLog()} {
		for _, order := range []string{"oldest first", "newest first", "random"} {
			t.Run(fmt.Sprint(a, " ", order), func(t *testing.T) {
				random := rand.New(rand.NewPCG(1, 2))
				rule := newRule(t, limit.PerDay(10_000).WithBurst(10_000), a)
				key := redistest.Prefix() + "many"
				open, ends := map[uint64]int64{}, int64(0)
				var lastID uint64
				most := 0
				check := func() {
					t.Helper()
					value, err := client.Get(t.Context(), key+":holds").Bytes()
					if len(open) == 0 {
						if err == nil {
							t.Fatalf("no hold is open, and the list has %d bytes", len(value))
						}
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					holds, err := state.DecodeHolds(value)
					if err != nil {
						t.Fatal(err)
					}
					listed := map[uint64]int64{}
					for _, h := range holds {
						listed[h.ID] = h.Units
					}
					if len(holds) != len(open) || !maps.Equal(listed, open) {
						t.Fatalf("%d holds are listed, %d are open", len(holds), len(open))
					}
					if bound := 15 + 30*(most+1); len(value) > bound {
						t.Fatalf("%d bytes for %d holds, at most %d at a time", len(value), len(open), most)
					}
					if at := redistest.ExpireTime(t, client, key+":holds").Milliseconds(); at < (ends+lua.LateHold)/1000 {
						t.Fatalf("expires %v early", time.Duration((ends+lua.LateHold)/1000-at)*time.Millisecond)
					}
				}
				hold := func() {
					t.Helper()
					lastID++
					e := holdEntry(key, rule, lua.Hold, lastID, 1+random.Int64N(9))
					e.Hold.Life = time.Duration(1+random.IntN(100)) * time.Second
					r := runAll(t, script, []Entry{e})[0]
					if r.Status != Allowed {
						t.Fatalf("%+v", r)
					}
					open[lastID], ends = e.Cost, max(ends, r.Clock+e.Hold.Life.Microseconds())
					most = max(most, len(open))
				}
				settle := func(n int) {
					t.Helper()
					ids := slices.Sorted(maps.Keys(open))
					switch order {
					case "newest first":
						slices.Reverse(ids)
					case "random":
						random.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
					}
					settlements := make([]Entry, n)
					for i, id := range ids[:n] {
						settlements[i] = holdEntry(key, rule, lua.Settle, id, 0)
						if i > 0 && !settlements[0].joinHold(&settlements[i]) {
							t.Fatal("the settlements share no entry")
						}
					}
					for _, id := range ids[:n] {
						delete(open, id)
					}
					if r := runAll(t, script, settlements[:1])[0]; r.Status != Allowed || r.Fitted != int64(n) {
						t.Fatalf("%+v", r)
					}
				}
				for last := range 2 { // the last holds are settled alone, then together
					for range 60 {
						hold()
						check()
					}
					for range 60 {
						if settle(1); random.IntN(3) > 0 {
							hold()
						}
						check()
						if random.IntN(20) == 0 {
							settle(2)
							check()
						}
					}
					for len(open) > 1+last {
						settle(1)
						check()
					}
					if r := runAll(t, script, []Entry{holdEntry(key, rule, lua.Settle, MaxHoldID+1, 0)})[0]; r.Status != Denied {
						t.Fatalf("the ID of a free line: %+v", r)
					}
					settle(1 + last)
					check()
					ends, most = 0, 0
				}
			})
		}
	}
}
