package remote

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// Law 3: hold operations on one key that share a trip also share entries. Whatever they ask for, and whether or not
// they all fit, their answers and effects are as if each had been sent alone, in the order of the trip.
func TestLaw3JoinedHoldsAreAsIfAlone(t *testing.T) {
	check := func(t *testing.T, client *redis.Client) {
		script := NewScript(client)
		rapid.Check(t, func(t *rapid.T) { checkJoinedHolds(t, script, client) })
	}
	t.Run("redis", func(t *testing.T) { check(t, redistest.Shared(t).Client(t)) })
	t.Run("miniredis", func(t *testing.T) {
		embedded, _ := redistest.Embedded(t)
		redistest.FewerCases(t, 5)
		check(t, embedded)
	})
}

func checkJoinedHolds(t *rapid.T, script *Script, client *redis.Client) {
	ctx := context.Background()
	a := rapid.SampledFrom(configurations()).Draw(t, "algorithm")
	l := limit.Per(rapid.Int64Range(5, 60).Draw(t, "quota"), time.Minute)
	packed, err := NewRule(l, a)
	if err != nil {
		t.Fatal(err)
	}
	if rapid.Bool().Draw(t, "given back at its end") {
		packed = packed.GivesBack()
	}
	joined, alone := redistest.Prefix()+"joined", redistest.Prefix()+"alone"
	now, lastID := int64(epoch), uint64(rapid.SampledFrom([]uint64{1, 0x2525252525252525, 0xff00ff00ff00ff00}).Draw(t, "first id"))
	var open []uint64
	if full := rapid.IntRange(0, 4).Draw(t, "room"); full > 0 { // leaves room for few holds, or for none
		text := []byte{lua.TagHolds}
		text = appendInt(appendInt(text, now+1, 7), now+3600e6, 7)
		for i := range lua.MaxHolds - full + 1 {
			text = appendInt(appendInt(append(text, 0), int64(i)+1<<40, 7), 1, 1)
			text = appendInt(appendInt(appendInt(text, now, 7), now+int64(i%3)*1e6, 7), 0, 7)
		}
		for _, key := range []string{joined, alone} {
			if err := client.Set(ctx, key+":holds", text, 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range rapid.IntRange(1, 8).Draw(t, "trips") {
		now += rapid.SampledFrom([]int64{0, 1, 900_000, 20_000_000, 61_000_000}).Draw(t, "later")
		calls := make([]*call, rapid.IntRange(1, 12).Draw(t, "calls"))
		for i := range calls {
			e := Entry{Key: joined, Rule: packed, Cost: rapid.SampledFrom([]int64{1, 1, 2, 4, 9}).Draw(t, "cost")}
			e.Operation = rapid.SampledFrom([]int{lua.Take, lua.Peek, lua.Hold, lua.Hold, lua.Hold, lua.Hold, lua.HoldUpTo, lua.Settle, lua.Settle, lua.Settle, lua.Settle, lua.Extend}).Draw(t, "operation")
			if e.Operation >= lua.Hold {
				e.Hold = &Hold{Life: rapid.SampledFrom([]time.Duration{time.Second, time.Second, time.Minute}).Draw(t, "life")}
				if e.Operation == lua.Hold || e.Operation == lua.HoldUpTo || len(open) == 0 {
					lastID++
					e.Hold.ID = lastID
					open = append(open, lastID)
				} else {
					e.Hold.ID = rapid.SampledFrom(open).Draw(t, "which") // may be a hold that was settled before
				}
			}
			if e.Operation == lua.Settle {
				e.Cost = rapid.SampledFrom([]int64{0, 1, 2, 5}).Draw(t, "used")
			}
			calls[i] = callOf(t.Context(), e)
		}
		var b batch
		for _, c := range calls {
			if b.add(c, newBounds(128, 1<<40, 0)) != added {
				t.Fatal("there is no room")
			}
		}
		b.finish()
		held := unitsHeld(linesOf(client, joined))
		replies, err := script.Run(ctx, b.entries, now)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortStableFunc(calls, func(c, d *call) int {
			if x, y := b.runs[c.run].at, b.runs[d.run].at; x != y {
				return int(x - y)
			}
			return int(c.place - d.place)
		})
		// Among joined settlements, those that charge more units come after those that give units back. A second
		// settlement of the same hold finds nothing.
		rank, seen := make(map[*call]int), make(map[uint64]bool)
		for _, c := range calls {
			if c.entry.Operation == lua.Settle {
				switch units, there := held[c.entry.Hold.ID]; {
				case seen[c.entry.Hold.ID]:
					rank[c] = 2
				case there && c.entry.Cost > units:
					rank[c] = 1
				}
				seen[c.entry.Hold.ID] = true
			}
		}
		slices.SortStableFunc(calls, func(c, d *call) int {
			if x, y := b.runs[c.run].at, b.runs[d.run].at; x != y {
				return int(x - y)
			}
			return rank[c] - rank[d]
		})
		for i, c := range calls {
			e := c.entry
			e.Key, e.name, e.holdsName = alone, "", ""
			want := runOne(t, script, e, now)
			got := b.answer(c, replies)[0].partOf(c)
			if entry := &b.entries[b.runs[c.run].at]; entry.count() > 1 {
				got.ResetAfter = want.ResetAfter // the reply has the value after the last call of the entry
				if e.Operation == lua.Settle {
					got.Granted, got.Remaining = want.Granted, want.Remaining // the total over all calls
				}
			}
			if got != want {
				t.Fatalf("call %d of %d at %d, %+v of %+v:\n%+v, alone\n%+v", i+1, len(calls), now, e.Operation, e.Hold, got, want)
			}
		}
		if x, y := linesOf(client, joined), linesOf(client, alone); x != y {
			t.Fatalf("what is held of them:\n%x, alone\n%x", x, y)
		}
		peek := Entry{Key: joined, Rule: packed, Operation: lua.Peek, Cost: 1}
		other := peek
		other.Key = alone
		if x, y := runOne(t, script, peek, now), runOne(t, script, other, now); x != y {
			t.Fatalf("the key then:\n%+v, alone\n%+v", x, y)
		}
	}
}

// unitsHeld returns the number of units that each hold in a key's lines has, by the hold's ID.
func unitsHeld(lines string) map[uint64]int64 {
	held := make(map[uint64]int64)
	for ; len(lines) >= 30; lines = lines[30:] {
		held[uint64(readInt(lines, 0, 8))] = readInt(lines, 23, 7)
	}
	return held
}

func runOne(t rapid.TB, script *Script, e Entry, now int64) Reply {
	t.Helper()
	replies, err := script.Run(context.Background(), []Entry{e}, now)
	if err != nil {
		t.Fatal(err)
	}
	return replies[0]
}

// The holds and settlements of a trip for one hot key are two entries, however many callers there are.
func TestHoldsOfATripShareEntries(t *testing.T) {
	rule, key := newRule(t, limit.PerHour(1000), limit.GCRA()), redistest.Prefix()+"hot"
	var b batch
	bound := newBounds(2, 1<<40, 1000)
	for id := uint64(1); id <= 100; id++ {
		e, settles := holdEntry(key, rule, lua.Hold, id, 10), holdEntry(key, rule, lua.Settle, id+100, int64(id))
		e.Cost = int64(id%7) + 1 // their estimates differ
		hold, settle := callOf(t.Context(), e), callOf(t.Context(), settles)
		hold.deadline, settle.deadline = int64(id), -int64(id)
		if b.add(hold, bound) != added || b.add(settle, bound) != added {
			t.Fatalf("the calls of %d do not share entries", id)
		}
	}
	b.finish()
	if got := fmt.Sprint(b.entries[0].Operation, b.entries[0].Count, b.entries[1].Operation, b.entries[1].Count); got != fmt.Sprint(lua.Settle, 100, lua.Hold, 100) {
		t.Errorf("operation and count of the entries: %s", got)
	}
	own := Entry{Key: key, Rule: rule, Operation: lua.Settle, Hold: &Hold{}}
	if b.add(callOf(t.Context(), own), bound) == added {
		t.Error("what settles no hold may be sent once only, within its deadline, and has an entry of its own")
	}
}

// linesOf returns the lines of a key's open holds, sorted, without the header. The header has the time of the next check,
// which may be earlier than necessary.
func linesOf(client *redis.Client, key string) string {
	text := client.Get(context.Background(), key+":holds").Val()
	var lines []string
	for line := range slices.Chunk([]byte(text[min(15, len(text)):]), 30) {
		if uint64(readInt(string(line), 0, 8)) <= MaxHoldID {
			lines = append(lines, string(line))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// Law 7: all settlements of a key that share a trip write its log at most twice: once for the units given back and
// once for the units charged in addition. The batch counts them as that much work.
func TestLaw7JoinedSettlementsCountWhatIsWritten(t *testing.T) {
	rule, key := newRule(t, limit.PerHour(1000), limit.SlidingLog()), redistest.Prefix()+"hot"
	settles := func(id uint64) *call { return callOf(t.Context(), holdEntry(key, rule, lua.Settle, id, 2000)) }
	once := settles(1)
	var b batch
	bound := newBounds(128, 2*once.work, 1000)
	for id := uint64(1); id <= 100; id++ {
		if got := b.add(settles(id), bound); got != added {
			t.Fatalf("settlement %d: %v", id, got)
		}
	}
	if b.work != 2*once.work {
		t.Errorf("100 settlements count as work of %d units, want twice the %d of one", b.work, once.work)
	}
	if got := b.add(callOf(t.Context(), Entry{Key: key + "2", Rule: rule, Cost: 100}), bound); got != full {
		t.Errorf("beyond the bound on work a call is added: %v", got)
	}
}

// Law 7: if not all holds of an entry fit, each hold whose number of units differs from that of the hold before it
// takes Redis about as long as an entry. A batch therefore has a bounded number of such holds.
func TestLaw7HoldsOfManyCostsThatShareAnEntry(t *testing.T) {
	rule, key := newRule(t, limit.PerHour(1_000_000), limit.GCRA()), redistest.Prefix()+"hot"
	var b batch
	bound := newBounds(3, 1<<40, 1000)
	add := func(id uint64, cost int64) outcome {
		return b.add(callOf(t.Context(), holdEntry(key, rule, lua.Hold, id, cost)), bound)
	}
	for id := uint64(1); id <= maxMixed+3; id++ {
		if got := add(id, int64(id)); got != added {
			t.Fatalf("hold %d: %v", id, got)
		}
	}
	if got := add(1000, 1000); got == added {
		t.Errorf("the batch has %d holds of other units than the one before, and takes another one", b.mixed)
	}
	if got := add(1001, maxMixed+3); got != added {
		t.Errorf("a hold of as many units as the last one: %v", got)
	}
}

// If several callers' holds do not all fit, each hold is reported on its own, also to the observer, which remembers
// denials and grants: a denial of 7 units says nothing about 2. A caller that has left changes nothing for the
// others.
func TestHoldsThatDoNotAllFitAreReportedOneByOne(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script, key := NewScript(client), redistest.Prefix()+"hot"
	heard := &listener{}
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	rule.observer = heard
	var b batch
	var calls []*call
	for i, cost := range []int64{5, 7, 7, 2, 3} {
		c := callOf(t.Context(), holdEntry(key, rule, lua.Hold, uint64(i+1), cost))
		if b.add(c, newBounds(1, 1<<40, 0)) != added {
			t.Fatalf("the hold of %d units does not share the entry", cost)
		}
		calls = append(calls, c)
	}
	b.finish()
	replies, err := script.Run(t.Context(), b.entries, 0)
	if err != nil {
		t.Fatal(err)
	}
	calls[3].claim() // its caller has left
	batcher := NewBatcher(script, Options{Deadline: time.Second}, Hooks{})
	batcher.handOut(slices.Clone(calls), &b, replies, 0)
	if want := "5:5 7:0 7:0 2:0 3:3 "; heard.text != want {
		t.Errorf("costs and what was granted of them, as the observer was notified: %s, want %s", heard.text, want)
	}
	for i, want := range map[int]Status{0: Allowed, 1: Denied, 2: Denied, 4: Allowed} {
		var r Reply
		<-calls[i].done
		calls[i].answered(&r)
		if r.Status != want || r.Clock == 0 || r.Stamp != r.Clock || (want == Denied) != (r.RetryAfter > 0) {
			t.Errorf("call %d: %+v, want status %v", i, r, want)
		}
	}
}

// The observer is not notified of an entry that was not decided. It would remember it as a denial.
func TestObserversAreNotifiedOfDecisionsOnly(t *testing.T) {
	heard, rule := &listener{}, newRule(t, limit.PerHour(10), limit.GCRA())
	rule.observer = heard
	b := NewBatcher(nil, Options{}, Hooks{})
	for _, r := range []Reply{{Err: ErrNoAnswer}, {Status: Expired}, {Status: Unreadable}, {Status: Denied}, {Status: Allowed, Granted: 2}} {
		b.notifyObserver(&Entry{Key: "k", Rule: rule, Cost: 2}, &r, 0)
	}
	if want := "2:0 2:2 "; heard.text != want {
		t.Errorf("costs and what was granted of them, as the observer was notified: %s, want %s", heard.text, want)
	}
}

// Law 3: however many holds share an entry, and however few of them fit, each caller learns the result of its own
// hold.
func TestLaw3ManyHoldsOfWhichFewFit(t *testing.T) {
	const fits, all = 10, 1000
	check := func(t *testing.T, client *redis.Client) {
		script, key := NewScript(client), redistest.Prefix()+"hot"
		rule := newRule(t, limit.PerHour(fits), limit.GCRA())
		var b batch
		var calls []*call
		for id := uint64(1); id <= all; id++ {
			c := callOf(t.Context(), holdEntry(key, rule, lua.Hold, id, 1))
			if b.add(c, newBounds(1, 1<<40, 0)) != added {
				t.Fatalf("hold %d does not share the entry", id)
			}
			calls = append(calls, c)
		}
		b.finish()
		replies, err := script.Run(t.Context(), b.entries, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range calls {
			if r := b.answer(c, replies)[0].partOf(c); (r.Status == Allowed) != (i < fits) {
				t.Fatalf("hold %d of %d, of which %d fit: %+v", i+1, all, fits, r)
			}
		}
		if n := len(unitsHeld(linesOf(client, key))); n != fits {
			t.Errorf("%d are held, want %d", n, fits)
		}
	}
	t.Run("redis", func(t *testing.T) { check(t, redistest.Shared(t).Client(t)) })
	t.Run("miniredis", func(t *testing.T) {
		embedded, _ := redistest.Embedded(t)
		check(t, embedded)
	})
}

// listener records the cost of each entry and the number of units granted.
type listener struct{ text string }

func (*listener) Answering(*Entry) {}

func (l *listener) Answered(_ int, e *Entry, r *Reply, _ int64) {
	l.text += fmt.Sprintf("%d:%d ", e.Cost, r.Granted)
}

// Under GCRA, holds that were charged together give units back as one sum. The effect is the same, to the last
// fraction of a µs, as if each hold were settled alone. This is also true if less is left of a charge than the
// settlement gives back, or less of the key's debt because Redis evicted the key.
func TestLaw10JoinedSettlementsGiveBackExactly(t *testing.T) {
	client, ctx := redistest.Shared(t).Client(t), context.Background()
	script := NewScript(client)
	used := []int64{3, 0, 1, 0, 2, 4, 0, 3, 0}
	const later = epoch + 300_000
	for _, quota := range []int64{60, 59, 7} {
		rule := newRule(t, limit.Per(quota, time.Minute).WithBurst(200), limit.GCRA())
		for _, others := range []int64{1, 20, 60} {
			for _, age := range []int64{0, 1, 900_000, 3_500_000, 8_000_000, 20_000_000} {
				for _, evicted := range []bool{false, true} {
					joined, alone := redistest.Prefix()+"joined", redistest.Prefix()+"alone"
					run := func(at int64, e Entry) Reply {
						t.Helper()
						replies, err := script.Run(ctx, []Entry{e}, at)
						if err != nil || replies[0].Status != Allowed {
							t.Fatalf("%+v, %v", replies, err)
						}
						return replies[0]
					}
					var all Entry
					for i := range used {
						id := uint64(i + 1)
						units, at := int64(4+i%3), epoch+int64(i/5*300_000)
						run(at, holdEntry(joined, rule, lua.Hold, id, units))
						run(at, holdEntry(alone, rule, lua.Hold, id, units))
						next := holdEntry(joined, rule, lua.Settle, id, used[i])
						if i == 0 {
							all = next
						} else if !all.joinHold(&next) {
							t.Fatal("two settlements of a key are not joined")
						}
					}
					for _, key := range []string{joined, alone} {
						if evicted {
							client.Del(ctx, key)
						}
						run(later, Entry{Key: key, Rule: rule, Cost: others})
					}
					given := int64(0)
					for i := range used {
						given += run(later+age, holdEntry(alone, rule, lua.Settle, uint64(i+1), used[i])).Granted
					}
					got := run(later+age, all)
					if a, b := client.Get(ctx, joined).Val(), client.Get(ctx, alone).Val(); got.Granted != given || a != b {
						t.Errorf("%d a minute, %d units of others, after %d µs, evicted %v: %d units given back, the key is %q; one by one %d, %q",
							quota, others, age, evicted, got.Granted, a, given, b)
					}
				}
			}
		}
	}
}

// Law 3: settlements that share an entry and give nothing back do not touch the charges, just as a single such
// settlement does not. The test settles a hold of which nothing is left and a hold that was used up, both under
// another limit than the one they were charged under.
func TestLaw3JoinedSettlementsThatGiveNothingBack(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script, key := NewScript(client), redistest.Prefix()+"joined"
	before := newRule(t, limit.Per(60, time.Minute).WithBurst(100), limit.GCRA())
	after := newRule(t, limit.Per(7, time.Minute).WithBurst(100), limit.GCRA())
	run := func(at int64, e Entry) {
		t.Helper()
		replies, err := script.Run(context.Background(), []Entry{e}, at)
		if err != nil || replies[0].Status != Allowed || replies[0].Err != nil {
			t.Fatalf("%+v, %v", replies, err)
		}
	}
	const later = epoch + 50_000_000
	run(epoch, Entry{Key: key, Rule: before, Cost: 60})
	run(epoch, holdEntry(key, before, lua.Hold, 1, 4))
	run(later, holdEntry(key, before, lua.Hold, 2, 4))
	state := client.Get(t.Context(), key).Val()
	all, usedUp := holdEntry(key, after, lua.Settle, 1, 0), holdEntry(key, after, lua.Settle, 2, 4)
	if !all.joinHold(&usedUp) {
		t.Fatal("two settlements of a key are not joined")
	}
	run(later, all)
	if now := client.Get(t.Context(), key).Val(); now != state {
		t.Errorf("the key is %q after settlements that give nothing back, and was %q", now, state)
	}
}
