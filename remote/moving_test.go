package remote

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// Law 3: while a slot is moving, some of its keys are on one node, some on the other, and some are new. A batch of
// them is decided nevertheless, and each entry is charged once. Only a group, or an entry of several keys such as a
// lease, cannot be divided: it charges nothing, and the other entries of its batch are decided.
func TestLaw3KeysOfAMovingSlot(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2)
	client, ctx := cluster.Client(t), context.Background()
	script := NewScript(client)
	rule := newRule(t, limit.PerHour(10), limit.SlidingLog())
	batch := func(group int, keys ...string) (entries []Entry) {
		for _, key := range keys {
			entries = append(entries, Entry{Key: key, Rule: rule, Cost: 1, Group: group})
		}
		return entries
	}
	expect := func(entries []Entry, remaining ...int64) {
		t.Helper()
		replies, err := script.Run(ctx, entries, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range replies {
			if r.Err != nil || r.Status != Allowed || r.Remaining != remaining[i] {
				t.Errorf("entry %d, of %s: %+v, want allowed with %d remaining", i, entries[i].Key, r, remaining[i])
			}
		}
	}
	const torn = -1
	slot, from, to := slotToMove(cluster, "{a}")

	expect(batch(0, "{a}1", "{a}2"), 9, 9)
	cluster.MoveSlots(t, from, to, []int{slot}, func() {
		expect(batch(0, "{a}1", "{a}2", "{a}1", "{a}3"), 8, 8, 7, 9)
		replies, err := script.Run(ctx, batch(1, "{a}1", "{a}2"), 0)
		if !redis.HasErrorPrefix(err, "TRYAGAIN") || KindOf(err) != Unavailable || replies != nil {
			t.Errorf("a group: %+v, %v; want TRYAGAIN", replies, err)
		}
		hold := Entry{Key: "{a}new", Rule: rule, Operation: lua.Hold, Cost: 1, Hold: &Hold{ID: 1, Life: time.Minute}} // has two keys
		if replies, err := script.Run(ctx, []Entry{hold}, 0); !redis.HasErrorPrefix(err, "TRYAGAIN") {
			t.Errorf("a hold: %+v, %v; want TRYAGAIN", replies, err)
		}

		// The same holds in a batch with entries of another slot.
		entries := batch(0, "{b}1", "{a}1", "{a}1", "{b}2", "{a}2", "{a}2", "{a}1", "{b}1")
		entries[1].Operation, entries[1].Lease = lua.Lease, &Lease{ID: 1, Most: 5, Life: time.Minute}
		entries[4].Operation, entries[4].Hold = lua.Hold, &Hold{ID: 1, Life: time.Minute}
		entries[6] = Entry{Key: "{a}1", Rule: rule, Operation: lua.Charge, Charges: []Charge{{Units: 1}}, Marker: "i", Sequence: 1}
		replies, err = script.Run(ctx, entries, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, remaining := range []int64{9, torn, 6, 9, torn, 7, torn, 8} {
			if r := replies[i]; remaining == torn && !redis.HasErrorPrefix(r.Err, "TRYAGAIN") || remaining != torn && (r.Err != nil || r.Remaining != remaining) {
				t.Errorf("entry %d of two slots, of %s: %+v, want %d remaining, or TRYAGAIN if %d", i, entries[i].Key, r, remaining, torn)
			}
		}
	})
	expect(batch(1, "{a}1", "{a}2"), 5, 6)

	// Before Redis 7, it is not the node that loses the slot which says so, but the one that it redirects to.
	said := ""
	for _, node := range cluster.Nodes() {
		info, err := node.Client(t).Info(ctx, "errorstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		said += info
	}
	if !strings.Contains(said, "errorstat_TRYAGAIN") {
		t.Errorf("the slot was never found torn:\n%s", said)
	}
}

// slotToMove returns the slot of a key, the node that has the slot, and the other node, in a Cluster of two.
func slotToMove(cluster *redistest.Cluster, key string) (slot int, from, to *redistest.Server) {
	slot = int(keySlot(key))
	from, to = cluster.Nodes()[0], cluster.Nodes()[1]
	if slot >= SlotCount/2 {
		from, to = to, from
	}
	return slot, from, to
}

// runAllowed runs entries, and reports an error for each that is not allowed.
func runAllowed(t *testing.T, script *Script, entries []Entry) []Reply {
	t.Helper()
	replies := runAll(t, script, entries)
	for i, r := range replies {
		if r.Status != Allowed {
			t.Errorf("entry %d, of %s: %+v", i, entries[i].Key, r)
		}
	}
	return replies
}

// While a slot is moving, a key that an entry empties is no longer there for the rest of the batch. The entry that
// gave the last units back has its effect, and the entries after it are decided.
func TestKeysThatAreEmptiedWhileTheirSlotMoves(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2)
	script := NewScript(cluster.Client(t))
	slot, from, to := slotToMove(cluster, "{a}")
	slots, err := NewSlotsRule(limit.Concurrent(10), time.Minute, Holder{1})
	if err != nil {
		t.Fatal(err)
	}
	rules := map[string]*Rule{
		"log":     newRule(t, limit.PerHour(10), limit.SlidingLog()),
		"zset":    newRule(t, limit.PerHour(10), limit.SlidingLogZSet()),
		"counter": newRule(t, limit.PerHour(10), limit.SlidingCounter(4, limit.Strict)),
		"gcra":    newRule(t, limit.PerHour(10), limit.GCRA()),
		"fixed":   newRule(t, limit.PerHour(10), limit.FixedWindow()),
		"slots":   slots,
	}
	run := func(entries ...Entry) []Reply { t.Helper(); return runAllowed(t, script, entries) }
	taken := map[string]Reply{}
	for name, rule := range rules {
		for _, key := range []string{"{a}" + name, "{a}" + name + "2"} {
			taken[key] = run(Entry{Key: key, Rule: rule, Cost: 1})[0]
		}
	}
	cluster.MoveSlots(t, from, to, []int{slot}, func() {
		for name, rule := range rules {
			for _, key := range []string{"{a}" + name, "{a}" + name + "2"} {
				back := Entry{Key: key, Rule: rule, Operation: lua.Refund, Cost: 1, Charged: 1, Stamp: taken[key].Stamp}
				take := Entry{Key: key, Rule: rule, Cost: 1}
				again := run(back, take)[1]
				back.Stamp = again.Stamp
				run(back)
			}
		}
	})
	for name, rule := range rules {
		for _, key := range []string{"{a}" + name, "{a}" + name + "2"} {
			if r := run(Entry{Key: key, Rule: rule, Cost: 1})[0]; r.Remaining != 9 {
				t.Errorf("%s: %+v, want all but one unit free", key, r)
			}
		}
	}
}

// A key of holds that an entry empties is still there for the rest of the batch: a hold that follows the settlement
// of the only open hold is decided, and the script does not fail in the middle.
func TestHoldsThatAreEmptiedWhileTheirSlotMoves(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2)
	client, ctx := cluster.Client(t), context.Background()
	script := NewScript(client)
	slot, from, to := slotToMove(cluster, "{a}")
	run := func(entries ...Entry) []Reply { t.Helper(); return runAllowed(t, script, entries) }
	type held struct {
		key  string
		rule *Rule
		used int64 // units in use beside the hold

		forgotten bool // the key is forgotten, with all its holds, instead of settled
	}
	entry := func(k held, e Entry) Entry {
		e.Key, e.Rule = k.key, k.rule
		return e
	}
	hold := func(k held, id uint64) Entry {
		return entry(k, Entry{Operation: lua.Hold, Cost: 1, Hold: &Hold{ID: id, Life: time.Minute}})
	}
	settle := func(k held, id uint64) Entry {
		if k.forgotten {
			return entry(k, Entry{Operation: lua.Forget, Cost: 1})
		}
		return entry(k, Entry{Operation: lua.Settle, Hold: &Hold{ID: id}})
	}
	take := func(k held, units int64) Entry { return entry(k, Entry{Cost: units}) }

	var keys []held
	for i, a := range []limit.Algorithm{limit.SlidingLog(), limit.SlidingCounter(4, limit.Strict), limit.GCRA(), limit.FixedWindow()} {
		rule := newRule(t, limit.PerHour(10).WithBurst(10), a)
		for used := range int64(2) {
			k := held{key: fmt.Sprintf("{a}%d.%d", i, used), rule: rule, used: used}
			if used > 0 {
				run(take(k, used))
			}
			run(hold(k, 1))
			keys = append(keys, k)
		}
		k := held{key: fmt.Sprintf("{a}%d.forgotten", i), rule: rule, forgotten: true}
		run(hold(k, 1))
		keys = append(keys, k)
	}
	decided := 0
	cluster.MoveSlots(t, from, to, []int{slot}, func() {
		for _, k := range keys {
			replies, err := script.Run(ctx, []Entry{settle(k, 1), hold(k, 2), take(k, 1)}, 0)
			if err != nil {
				t.Fatal(err)
			}
			if redis.HasErrorPrefix(replies[0].Err, "TRYAGAIN") {
				continue // the node has only one of its two keys
			}
			decided++
			for i, remaining := range []int64{10, 9, 8} {
				if r := replies[i]; r.Err != nil || r.Status != Allowed || r.Remaining != remaining-k.used {
					t.Errorf("entry %d, of %s: %+v, want allowed with %d remaining", i, k.key, r, remaining-k.used)
				}
			}
		}
	})
	if decided < len(keys)-1 { // the first key that moves may be one of a hold's two keys
		t.Errorf("of %d keys %d were decided", len(keys), decided)
	}

	// Nothing is left of holds that are settled.
	for i, k := range keys {
		k.key = fmt.Sprintf("{a}left%d", i)
		run(hold(k, 1))
		run(settle(k, 1), take(k, 1), hold(k, 2), settle(k, 2), Entry{Key: "{a}other", Rule: k.rule, Operation: lua.Peek, Cost: 1})
		if left := client.Exists(ctx, holdsKey(k.key)); left.Err() != nil || left.Val() != 0 {
			t.Errorf("%s: %v", k.key, left)
		}
	}
}

// A key that is reset is still there for the rest of the batch, and so is its list of holds, whatever other entries did
// to it before: the entries after the reset are decided, and the script does not fail in the middle.
func TestKeysThatAreResetWhileTheirSlotMoves(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2)
	script := NewScript(cluster.Client(t))
	slot, from, to := slotToMove(cluster, "{a}")
	var batches [][]Entry
	for i, a := range []limit.Algorithm{
		limit.SlidingLog(), limit.SlidingLogZSet(), limit.SlidingCounter(4, limit.Strict), limit.GCRA(), limit.FixedWindow(),
	} {
		take := Entry{Rule: newRule(t, limit.PerHour(10).WithBurst(10), a), Cost: 1}
		hold, settle, reset := take, take, take
		hold.Operation, hold.Hold = lua.Hold, &Hold{ID: 1, Life: time.Minute}
		settle.Operation, settle.Cost, settle.Hold = lua.Settle, 0, hold.Hold
		reset.Operation = lua.Forget
		for j, before := range [][]Entry{{}, {settle}, {take}, {reset}, {reset, take}} {
			batch := append(before, reset, take)
			hold.Key = fmt.Sprintf("{a}%d.%d", i, j)
			for e := range batch {
				batch[e].Key = hold.Key
			}
			runAllowed(t, script, []Entry{hold})
			batches = append(batches, batch)
		}
	}
	cluster.MoveSlots(t, from, to, []int{slot}, func() {
		for _, batch := range batches {
			replies, err := script.Run(context.Background(), batch, 0)
			if err != nil {
				t.Errorf("%v: %+v", err, batch)
			} else if redis.HasErrorPrefix(replies[len(batch)-2].Err, "TRYAGAIN") {
				continue // the node has only one of the two keys of the reset
			} else if r := replies[len(batch)-1]; r.Remaining != 9 {
				t.Errorf("%+v: %+v, want 9 remaining", batch, r)
			}
		}
	})
}

// answers is a hook that answers commands in place of a server, according to their names.
type answers func(name string) error

func (answers) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a answers) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (a answers) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		cmd.SetErr(a(cmd.Name()))
		return cmd.Err()
	}
}

// A single entry may first find the script missing, as on a new node, and then find its keys torn.
func TestASingleEntryOfAMovingSlot(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	runs := 0
	client.AddHook(answers(func(name string) error {
		switch name {
		case "script":
			return nil
		case "evalsha":
			if runs++; runs > 1 {
				return refusal("TRYAGAIN Multiple keys request during rehashing of slot")
			}
			return refusal("NOSCRIPT No matching script")
		}
		return refusal("unknown command")
	}))
	e := Entry{
		Key: "k", Rule: newRule(t, limit.PerHour(10), limit.SlidingLog()), Operation: lua.Lease, Cost: 1,
		Lease: &Lease{ID: 1, Most: 5, Life: time.Second},
	}
	replies, err := NewScript(client).Run(context.Background(), []Entry{e}, 0)
	if !redis.HasErrorPrefix(err, "TRYAGAIN") || replies != nil || runs != 2 {
		t.Errorf("%+v, %v after %d runs; want TRYAGAIN after 2", replies, err, runs)
	}
}
