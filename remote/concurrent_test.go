package remote

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

func newSlotsRule(t require, n int64, ttl time.Duration, holder uint64) *Rule {
	t.Helper()
	var id Holder
	binary.BigEndian.PutUint64(id[:], holder)
	rule, err := NewSlotsRule(limit.Concurrent(n), ttl, id)
	if err != nil {
		t.Fatal(err)
	}
	return rule
}

// require has the methods that *testing.T and *rapid.T share.
type require interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func TestSlotsRuleRefusesWhatItCannotHold(t *testing.T) {
	for name, test := range map[string]struct {
		l    limit.Limit
		ttl  time.Duration
		want error
	}{
		"a window":      {limit.PerMinute(3), time.Second, limit.ErrInvalidLimit},
		"no units":      {limit.Concurrent(0), time.Second, limit.ErrInvalidLimit},
		"no life":       {limit.Concurrent(3), 0, limit.ErrInvalidOption},
		"a day of life": {limit.Concurrent(3), 24 * time.Hour, limit.ErrInvalidOption},
	} {
		if _, err := NewSlotsRule(test.l, test.ttl, Holder{}); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, a := range append(limit.Algorithms(), limit.Concurrency()) {
		if _, err := NewRule(limit.Concurrent(3), a); !errors.Is(err, limit.ErrInvalidAlgorithm) {
			t.Errorf("%v for what is held at the same time: %v", a, err)
		}
	}
	if _, err := NewRule(limit.PerMinute(3), limit.Concurrency()); !errors.Is(err, limit.ErrInvalidAlgorithm) {
		t.Errorf("a window for what is held at the same time: %v", err)
	}
}

// Law 8: a key expires when no process can hold units of it any more: when the TTL is over that lasts longest of all
// that have acquired units. Neither a denial, a peek nor a release prolongs its life. When all units have been given
// back, the key is deleted.
func TestLaw8SlotsExpireWithTheirLastProcess(t *testing.T) {
	client, ctx := redistest.Shared(t).Client(t), context.Background()
	script, key := NewScript(client), redistest.Prefix()+"held"
	short, long := newSlotsRule(t, 5, time.Minute, 1), newSlotsRule(t, 5, 2*time.Minute, 2)
	expires := func() int64 { return redistest.ExpireTime(t, client, key).Milliseconds() }
	taken := runAll(t, script, []Entry{{Key: key, Rule: short, Cost: 2}, {Key: key, Rule: long, Cost: 3}})[0].Clock
	after := func(d time.Duration) int64 { return (taken + d.Microseconds() + 999) / 1000 } // rounded up
	last := expires()
	if last != after(2*time.Minute) {
		t.Errorf("it expires at %d, want %d", last, after(2*time.Minute))
	}
	denied := runAll(t, script, []Entry{{Key: key, Rule: long, Cost: 1}, {Key: key, Rule: long, Cost: 1, Operation: lua.Peek}})
	if denied[0].Status != Denied || denied[1].Status != Denied || expires() != last {
		t.Errorf("%+v; it expired at %d and now at %d", denied, last, expires())
	}
	runAll(t, script, []Entry{{Key: key, Rule: long, Cost: 3, Operation: lua.Refund}})
	if at := expires(); at != last {
		t.Errorf("after the process that lasted longest gave all back it expires at %d, want %d", at, last)
	}
	runAll(t, script, []Entry{{Key: key, Rule: short, Cost: 2, Operation: lua.Refund}})
	if n := client.Exists(ctx, key).Val(); n != 0 {
		t.Errorf("nothing is held, and the key is there: %q", client.Get(ctx, key).Val())
	}
}

// Law 8: a key of which many processes hold units, one record of which is written at a time, lives on when one of them
// acquires another.
func TestLaw8SlotsOfManyProcessesExpireLater(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script, key := NewScript(client), redistest.Prefix()+"held"
	for range 2 {
		for holder := range uint64(20) {
			r := runAll(t, script, []Entry{{Key: key, Rule: newSlotsRule(t, 100, time.Minute, holder), Cost: 1}})[0]
			if at, want := redistest.ExpireTime(t, client, key).Milliseconds(), (r.Clock+time.Minute.Microseconds()+999)/1000; at != want {
				t.Fatalf("after process %d has acquired a unit, it expires at %d, want %d", holder, at, want)
			}
		}
	}
}

// Law 7: at most 1,000 processes hold units of a key, however large the limit, and whichever operation gave them
// the units. A further process is denied until the first of them counts as dead.
func TestLaw7ProcessesThatHoldAreBounded(t *testing.T) {
	script, key := NewScript(redistest.Shared(t).Client(t)), redistest.Prefix()+"held"
	at, ttl := int64(epoch), time.Minute
	run := func(holder uint64, operation int, cost int64) Reply {
		t.Helper()
		replies, err := script.Run(context.Background(), []Entry{{Key: key, Rule: newSlotsRule(t, limit.MaxQuota, ttl, holder), Operation: operation, Cost: cost}}, at)
		if err != nil {
			t.Fatal(err)
		}
		return replies[0]
	}
	for holder := range uint64(1000) {
		if r := run(holder, lua.Take, 1); r.Status != Allowed {
			t.Fatalf("process %d: %+v", holder, r)
		}
		at++
	}
	if r := run(1000, lua.Slots, 1); r.Status != Allowed || r.Granted != 0 {
		t.Errorf("one too many says that it holds some: %+v", r)
	}
	if r := run(0, lua.Take, 1); r.Status != Allowed || r.Remaining == 0 { // the units of process 0 last from now on
		t.Errorf("one that holds some already: %+v", r)
	}
	r := run(1000, lua.Take, 1)
	if wait := ttl - 999*time.Microsecond; r.Status != Denied || r.Remaining != 0 || r.RetryAfter != wait || r.NextAfter != wait {
		t.Errorf("one too many: %+v, want it to wait for %v", r, wait)
	}
	at += r.RetryAfter.Microseconds() - 1
	if r := run(1000, lua.Take, 1); r.Status != Denied {
		t.Errorf("before its time: %+v", r)
	}
	at++
	if r := run(1000, lua.Take, 1); r.Status != Allowed {
		t.Errorf("at its time: %+v", r)
	}
	if r := run(1001, lua.Take, 1); r.Status != Denied {
		t.Errorf("one too many again: %+v", r)
	}
	run(7, lua.Refund, 1)
	if r := run(1001, lua.Take, 1); r.Status != Allowed {
		t.Errorf("after process 7 has given its unit back: %+v", r)
	}
}

// Nobody waits for units that will never be free.
func TestMoreSlotsThanThereAre(t *testing.T) {
	script, rule := NewScript(redistest.Shared(t).Client(t)), newSlotsRule(t, 3, time.Minute, 1)
	for _, operation := range []int{lua.Take, lua.Peek} {
		if r := runAll(t, script, []Entry{{Key: redistest.Prefix() + "k", Rule: rule, Operation: operation, Cost: 4}})[0]; r.Status != Denied || r.Remaining != 3 || r.RetryAfter != 0 {
			t.Errorf("%+v, want a denial without a time to retry", r)
		}
	}
}

// A key that is reset in the middle of a batch is empty for the entries after that, which are decided as if each had
// come alone.
func TestSlotsAreResetInABatch(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script, key := NewScript(client), redistest.Prefix()+"reset"
	one, two := newSlotsRule(t, 3, time.Minute, 1), newSlotsRule(t, 3, time.Minute, 2)
	entries := []Entry{
		{Key: key, Rule: one, Operation: lua.Take, Cost: 2},
		{Key: key, Rule: one, Operation: lua.Forget},
		{Key: key, Rule: two, Operation: lua.Take, Cost: 3},
		{Key: key, Rule: one, Operation: lua.Take, Cost: 1},
		{Key: key, Rule: two, Operation: lua.Forget},
		{Key: key, Rule: two, Operation: lua.Slots, Cost: 1},
		{Key: key, Rule: one, Operation: lua.Peek, Cost: 1},
		{Key: key, Rule: two, Operation: lua.Forget},
	}
	free := []int64{1, 3, 0, 0, 3, 2, 2, 3}
	for range 2 {
		for i, r := range runAll(t, script, entries) {
			if r.Err != nil || r.Remaining != free[i] {
				t.Errorf("entry %d: %d units are free, want %d; %v", i, r.Remaining, free[i], r.Err)
			}
		}
	}
	if n, err := client.Exists(context.Background(), key, key+":holds").Result(); err != nil || n != 0 {
		t.Errorf("%d keys are left, %v", n, err)
	}
}

// Law 7: whatever number of units a process says it holds, the key remains readable.
func TestLaw7MoreUnitsThanThereAreCanBeHeld(t *testing.T) {
	script, key := NewScript(redistest.Shared(t).Client(t)), redistest.Prefix()+"held"
	rule := newSlotsRule(t, 5, time.Minute, 1)
	runAll(t, script, []Entry{{Key: key, Rule: rule, Operation: lua.Slots, Cost: lua.SlotsAsKnown - 1}})
	if r := runAll(t, script, []Entry{{Key: key, Rule: rule, Operation: lua.Slots, Cost: 2}, {Key: key, Rule: rule, Cost: 3}})[1]; r.Status != Allowed {
		t.Errorf("%+v", r)
	}
}

// Law 4: an entry about a process's slots changes nothing after its not-after, because it would undo later changes.
func TestLaw4LateEntriesAboutSlotsChangeNothing(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script, key, rule := NewScript(client), redistest.Prefix()+"held", newSlotsRule(t, 5, time.Minute, 1)
	now := runAll(t, script, []Entry{{Key: key, Rule: rule, Cost: 2}})[0].Clock
	expires := redistest.ExpireTime(t, client, key)
	for name, e := range map[string]Entry{
		"how many":         {Operation: lua.Slots, Cost: 5},
		"none":             {Operation: lua.Slots, Cost: 0},
		"that it is alive": {Operation: lua.Slots, Cost: lua.SlotsAsKnown},
		"a release":        {Operation: lua.Refund, Cost: 1},
		"an acquisition":   {Operation: lua.Take, Cost: 1},
	} {
		e.Key, e.Rule, e.NotAfter = key, rule, now-1000
		if late := runAll(t, script, []Entry{e})[0]; late.Status != Expired || redistest.ExpireTime(t, client, key) != expires {
			t.Errorf("%s: %+v", name, late)
		}
	}
	if known := runAll(t, script, []Entry{{Key: key, Rule: rule, Operation: lua.Slots, Cost: lua.SlotsAsKnown}})[0]; known.Granted != 2 {
		t.Errorf("then %+v", known)
	}
}

// Rules with windows and concurrency limits never read each other's state.
func TestSlotsAreNoStateOfAnotherAlgorithm(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script := NewScript(client)
	for _, a := range configurations() {
		counted, key := newRule(t, limit.PerHour(10), a), redistest.Prefix()+"k"
		held := newSlotsRule(t, 5, time.Minute, 1)
		runAll(t, script, []Entry{{Key: key, Rule: counted, Cost: 1}, {Key: key + "2", Rule: held, Cost: 1}})
		replies := runAll(t, script, []Entry{{Key: key, Rule: held, Cost: 1}, {Key: key + "2", Rule: counted, Cost: 1}})
		if replies[0].Status != Unreadable || replies[1].Status != Unreadable {
			t.Errorf("%v: %+v", a, replies)
		}
	}
	keys := newKeyspace(t, "tl")
	of := func(r *Rule) string { return r.Named(keys, "r", nil).redisKey("k") }
	if of(newSlotsRule(t, 5, time.Minute, 1)) == of(newRule(t, limit.PerHour(10), limit.GCRA())) {
		t.Error("their Redis keys are the same")
	}
}

// checkDamagedSlots checks law 7 for values of concurrency limits. Whatever the damage to a value, its own entry is
// unreadable or answered in range, the other entries of the batch are decided, and the key expires.
func checkDamagedSlots(t *rapid.T, client *redis.Client, script *Script) {
	ctx, prefix := context.Background(), redistest.Prefix()
	key := prefix + "damaged"
	defer client.Del(ctx, key, prefix+"a")
	rules := []*Rule{newSlotsRule(t, 10, time.Minute, 1), newSlotsRule(t, 300, time.Hour/6, 2)}
	clock := rapid.SampledFrom([]int64{0, epoch}).Draw(t, "clock")
	run := func(at int64, entries ...Entry) []Reply {
		t.Helper()
		replies, err := script.Run(ctx, entries, at)
		if err != nil {
			t.Fatalf("%+v: %v", entries, err)
		}
		return replies
	}
	for holder := range rapid.Uint64Range(1, 8).Draw(t, "holders") { // may be more than the script reads at first
		run(clock, Entry{Key: key, Rule: newSlotsRule(t, 300, time.Minute, holder), Cost: 1})
	}
	damage(t, client, key)
	before := client.Dump(ctx, key).Val()
	for range 3 {
		if clock > 0 {
			clock += rapid.SampledFrom([]int64{0, 1, 59_999_999, 1_000_000_000, -1_000_000}).Draw(t, "later")
		}
		e := Entry{Key: key, Rule: rapid.SampledFrom(rules).Draw(t, "rule"), Cost: rapid.Int64Range(1, 10).Draw(t, "cost")}
		e.Operation = rapid.SampledFrom([]int{lua.Take, lua.TakeUpTo, lua.Peek, lua.Refund, lua.Slots}).Draw(t, "operation")
		if e.Operation == lua.Slots && rapid.Bool().Draw(t, "renew") {
			e.Cost = lua.SlotsAsKnown
		}
		replies := run(clock, Entry{Key: prefix + "a", Rule: rules[0], Cost: 1, Operation: lua.Peek}, e, Entry{Key: prefix + "a", Rule: rules[0], Cost: 10, Operation: lua.Peek})
		r := replies[1]
		if replies[0].Status != Allowed || replies[2].Status != Allowed {
			t.Fatalf("beside the damaged value: %+v", replies)
		}
		within := func(d time.Duration) bool { return d >= 0 && d <= damageRange }
		if r.Remaining < 0 || r.Remaining > 300 || r.Granted < 0 || r.Granted > 1<<42 || !within(r.RetryAfter) || !within(r.NextAfter) || !within(r.ResetAfter) {
			t.Fatalf("%+v: %+v", e, r)
		}
		if after := client.Dump(ctx, key).Val(); r.Status == Unreadable && after != before {
			t.Fatalf("unreadable and overwritten: %q became %q", before, after)
		}
		before = client.Dump(ctx, key).Val()
	}
	if life := client.PTTL(ctx, key).Val(); life == -1 || life > damageRange {
		t.Fatalf("it expires in %v", life)
	}
}

func TestLaw7DamagedSlots(t *testing.T) {
	client, scripts := damageScripts(t)
	now := string(appendInt(nil, time.Now().UnixMicro(), 7))
	header, till := "\x0a"+now+strings.Repeat("\x00", 7), string(appendInt(nil, time.Now().Add(time.Hour/12).UnixMicro(), 7))
	number := func(n int64) string { return string(appendInt(nil, n, 7)) }
	one, never, own := number(1), strings.Repeat("\xff", 7), "\x00\x00\x00\x00\x00\x00\x00\x01"
	sums := number(3) + till + till
	for name, value := range map[string]string{
		"another tag":                   "\x09" + header[1:] + sums + "holder01" + till + one,
		"a header only":                 header,
		"no line":                       header + sums,
		"half a line":                   header + sums + "holder01" + till,
		"no units":                      header + number(0) + till + till + "holder01" + till + one,
		"too many units":                header + number(1000<<42+1) + till + till + "holder01" + till + one,
		"held for ever":                 header + number(3) + till + never + "holder01" + till + one,
		"the first ends after the last": header + number(3) + never + till + "holder01" + till + one,
		"more lines than there are":     header + number(1001) + till + till + strings.Repeat("x", 22*1001),
	} {
		for _, operation := range []int{lua.Take, lua.Refund, lua.Peek} {
			prefix := redistest.Prefix()
			client.Set(context.Background(), prefix+"damaged", value, time.Hour)
			rule := newSlotsRule(t, 10, time.Minute, 1)
			replies := runAll(t, scripts[0], []Entry{{Key: prefix + "a", Rule: rule, Cost: 1}, {Key: prefix + "damaged", Rule: rule, Operation: operation, Cost: 1}, {Key: prefix + "b", Rule: rule, Cost: 1}})
			if replies[0].Status != Allowed || replies[1].Status != Unreadable || replies[2].Status != Allowed {
				t.Errorf("%s: %+v", name, replies)
			}
		}
	}
	// A sound value shows that the values above are not unreadable for another reason. It has the process's id in the middle
	// of another process's line.
	for _, operation := range []int{lua.Take, lua.TakeUpTo} {
		sound := redistest.Prefix() + "sound"
		client.Set(context.Background(), sound, header+one+till+till+"holder01"+till[:6]+own[:1]+one, time.Hour)
		if r := runAll(t, scripts[0], []Entry{{Key: sound, Rule: newSlotsRule(t, 10, time.Minute, 1), Operation: operation, Cost: 2}})[0]; r.Status != Allowed || r.Granted != 2 || r.Remaining != 7 {
			t.Errorf("a sound value: %+v", r)
		}
	}
	// A damaged line of the process itself counts as one without units.
	for _, line := range []string{own + never + one, own + till + number(4)} {
		for _, operation := range []int{lua.Take, lua.TakeUpTo} {
			key := redistest.Prefix() + "own"
			client.Set(context.Background(), key, header+sums+line, time.Hour)
			if r := runAll(t, scripts[0], []Entry{{Key: key, Rule: newSlotsRule(t, 10, time.Minute, 1), Operation: operation, Cost: 2}})[0]; r.Status != Allowed || r.Granted != 2 || r.Remaining != 5 {
				t.Errorf("%q: %+v, want 5 units free", line, r)
			}
			if r := runAll(t, scripts[0], []Entry{{Key: key, Rule: newSlotsRule(t, 10, time.Minute, 1), Operation: lua.Refund, Cost: 9}})[0]; r.Granted != 2 {
				t.Errorf("%q: %+v, want 2 units released", line, r)
			}
		}
	}
	// When the first line is over, all are looked at: those that are damaged are dropped.
	ended, later := redistest.Prefix()+"ended", string(appendInt(nil, time.Now().Add(time.Hour).UnixMicro(), 7))
	client.Set(context.Background(), ended, header+number(9)+now+till+"holder01"+now+one+"holder02"+till+number(2)+"holder03"+later+one+"holder04"+till+number(1<<42+1)+"holder05"+till+number(0), time.Hour)
	if r := runAll(t, scripts[0], []Entry{{Key: ended, Rule: newSlotsRule(t, 10, time.Minute, 1), Cost: 1}})[0]; r.Status != Allowed || r.Remaining != 7 {
		t.Errorf("one sound line of two units among damaged ones: %+v, want 7 units free", r)
	}
	rapid.Check(t, func(t *rapid.T) {
		checkDamagedSlots(t, client, scripts[rapid.IntRange(0, len(scripts)-1).Draw(t, "script")])
	})
}

func FuzzDamagedSlots(f *testing.F) {
	client, scripts := damageScripts(f)
	f.Add([]byte(strings.Repeat("slots", 1000)))
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) { checkDamagedSlots(t, client, scripts[0]) }))
}
