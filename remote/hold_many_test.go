package remote

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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
		for order, sorted := range map[string]func(ids []uint64){
			"oldest first": func([]uint64) {},
			"newest first": func(ids []uint64) { slices.Reverse(ids) },
			"random":       func(ids []uint64) { rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] }) },
		} {
			t.Run(fmt.Sprint(a, " ", order), func(t *testing.T) {
				l := &holdList{T: t, client: client, script: script, key: redistest.Prefix() + "many", sorted: sorted, open: map[uint64]int64{}}
				l.rule = newRule(t, limit.PerDay(10_000).WithBurst(10_000), a)
				l.openAndSettle(1)
				l.openAndSettle(2)
			})
		}
	}
}

// holdList knows which holds of a key are open.
type holdList struct {
	*testing.T
	client *redis.Client
	script *Script
	rule   *Rule
	key    string
	sorted func(ids []uint64) // puts the open holds, oldest first, into the order in which they are settled

	lastID uint64
	open   map[uint64]int64 // units by ID
	ends   int64            // the latest end of all holds since the list was empty
	most   int              // the most that were open at the same time since then
}

// openAndSettle opens many holds and settles them, the last ones together.
func (l *holdList) openAndSettle(last int) {
	for range 60 {
		l.hold()
	}
	for range 60 {
		if l.settle(1); rand.IntN(3) > 0 {
			l.hold()
		}
		if rand.IntN(20) == 0 {
			l.settle(2)
		}
	}
	for len(l.open) > last {
		l.settle(1)
	}
	if r := l.run(holdEntry(l.key, l.rule, lua.Settle, MaxHoldID+1, 0)); r.Status != Denied {
		l.Fatalf("the ID of a free line: %+v", r)
	}
	l.settle(last)
	l.ends, l.most = 0, 0
}

func (l *holdList) run(e Entry) Reply { return runAll(l.T, l.script, []Entry{e})[0] }

func (l *holdList) hold() {
	l.lastID++
	e := holdEntry(l.key, l.rule, lua.Hold, l.lastID, 1+rand.Int64N(9))
	e.Hold.Life = time.Duration(1+rand.IntN(100)) * time.Second
	r := l.run(e)
	if r.Status != Allowed {
		l.Fatalf("%+v", r)
	}
	l.open[l.lastID], l.ends = e.Cost, max(l.ends, r.Clock+e.Hold.Life.Microseconds())
	l.most = max(l.most, len(l.open))
	l.check()
}

// settle settles n holds with one entry.
func (l *holdList) settle(n int) {
	ids := slices.Sorted(maps.Keys(l.open))
	l.sorted(ids)
	settlements := holdEntry(l.key, l.rule, lua.Settle, ids[0], 0)
	delete(l.open, ids[0])
	for _, id := range ids[1:n] {
		other := holdEntry(l.key, l.rule, lua.Settle, id, 0)
		if !settlements.joinHold(&other) {
			l.Fatal("the settlements share no entry")
		}
		delete(l.open, id)
	}
	if r := l.run(settlements); r.Status != Allowed || r.Fitted != int64(n) {
		l.Fatalf("%+v", r)
	}
	l.check()
}

// check compares the list in Redis with the open holds.
func (l *holdList) check() {
	value, err := l.client.Get(l.Context(), l.key+":holds").Bytes()
	if len(l.open) == 0 {
		if err == nil {
			l.Fatalf("no hold is open, and the list has %d bytes", len(value))
		}
		return
	}
	if err != nil {
		l.Fatal(err)
	}
	holds, err := state.DecodeHolds(value)
	if err != nil {
		l.Fatal(err)
	}
	listed := map[uint64]int64{}
	for _, h := range holds {
		listed[h.ID] = h.Units
	}
	if len(holds) != len(l.open) || !maps.Equal(listed, l.open) {
		l.Fatalf("%d holds are listed, %d are open", len(holds), len(l.open))
	}
	if most := 15 + 30*l.most; len(value) > most {
		l.Fatalf("%d bytes for %d holds, at most %d at a time", len(value), len(l.open), l.most)
	}
	early := l.ends + lua.LateHold - redistest.ExpireTime(l.T, l.client, l.key+":holds").Microseconds()
	if early > 0 {
		l.Fatalf("the list expires %d µs early", early)
	}
}
