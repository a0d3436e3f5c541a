package remote

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

func holdEntry(key string, rule *Rule, operation int, id uint64, cost int64) Entry {
	return Entry{Key: key, Rule: rule, Operation: operation, Cost: cost, Hold: &Hold{ID: id, Life: time.Minute}}
}

// Laws 7 and 8: however large the limit, the number of open holds of a key is bounded, and holds that have ended
// make room for others. The key of the holds expires.
func TestLaws7And8HoldsOfAKeyAreBounded(t *testing.T) {
	client, ctx := redistest.Shared(t).Client(t), context.Background()
	script := NewScript(client)
	for _, givesBack := range []bool{false, true} {
		rule := newRule(t, limit.PerHour(limit.MaxQuota), limit.FixedWindow())
		if givesBack {
			rule = rule.GivesBack()
		}
		key := fmt.Sprint(redistest.Prefix(), "held", givesBack)
		at := int64(epoch)
		run := func(e Entry) Reply {
			t.Helper()
			return runOne(t, script, e, at)
		}
		for id := uint64(1); id <= lua.MaxHolds; id++ {
			if r := run(holdEntry(key, rule, lua.Hold, id, 1)); r.Status != Allowed {
				t.Fatalf("hold %d: %+v", id, r)
			}
			at++
		}
		r := run(holdEntry(key, rule, lua.Hold, lua.MaxHolds+1, 1))
		if wait := time.Minute - lua.MaxHolds*time.Microsecond; r.Status != Denied || r.RetryAfter != wait || r.Granted != 0 || r.Remaining < 1 {
			t.Errorf("one hold too many: %+v, want it denied until the first one ends in %v", r, wait)
		}
		if r := run(holdEntry(key, rule, lua.HoldUpTo, lua.MaxHolds+1, 1)); r.Status != Denied || r.Granted != 0 {
			t.Errorf("one hold too many, of what fits: %+v", r)
		}
		at += r.RetryAfter.Microseconds()
		if r := run(holdEntry(key, rule, lua.Hold, lua.MaxHolds+1, 1)); r.Status != Allowed {
			t.Errorf("once the first has ended: %+v", r)
		}
		if size := client.StrLen(ctx, key+":holds").Val(); size > 15+lua.MaxHolds*30 {
			t.Errorf("what is held takes %d bytes", size)
		}
	}

	for _, a := range configurations() {
		rule, key := newRule(t, limit.PerHour(100).WithBurst(100), a), redistest.Prefix()+"held"
		for id, life := range map[uint64]time.Duration{1: time.Minute, 2: lua.LongestHold * time.Microsecond} {
			e := holdEntry(key, rule, lua.Hold, id, 1)
			e.Hold.Life = life
			clock := runAll(t, script, []Entry{e})[0].Clock
			// The hold may still be settled for LateHold after its end, and keys expire at whole milliseconds.
			want := (clock + life.Microseconds() + lua.LateHold + 999) / 1000
			if at := redistest.ExpireTime(t, client, key+":holds").Milliseconds(); at != want {
				t.Errorf("%v: what is held for %v expires at %d, want %d", a, life, at, want)
			}
			runAll(t, script, []Entry{holdEntry(key, rule, lua.Settle, id, 0)})
			if n := client.Exists(ctx, key+":holds").Val(); n != 0 {
				t.Errorf("%v: the key of the holds is left once all was given back", a)
			}
			// Under GCRA, the part of a charge that was paid off meanwhile stays charged.
			if n := client.Exists(ctx, key).Val(); n != 0 && a != limit.GCRA() {
				t.Errorf("%v: the key is left once all was given back", a)
			}
		}
	}
}

// Law 5: the clock steps back, and the key's state expires while the most holds are open that a key can have. The time of
// these holds is then that of a clock that nobody knows any more. They must not keep others out for as long as the step.
func TestLaw5HoldsOfALostClockMakeRoom(t *testing.T) {
	client, ctx := redistest.Shared(t).Client(t), context.Background()
	script := NewScript(client)
	for _, givesBack := range []bool{false, true} {
		rule := newRule(t, limit.PerHour(limit.MaxQuota), limit.FixedWindow())
		if givesBack {
			rule = rule.GivesBack()
		}
		key := fmt.Sprint(redistest.Prefix(), "held", givesBack)
		const step = int64(24 * time.Hour / time.Microsecond)
		for id := uint64(1); id <= lua.MaxHolds; id++ {
			if r := runOne(t, script, holdEntry(key, rule, lua.Hold, id, 1), epoch+step); r.Status != Allowed {
				t.Fatalf("hold %d: %+v", id, r)
			}
		}
		if r := runOne(t, script, holdEntry(key, rule, lua.Hold, lua.MaxHolds+1, 1), epoch); r.Status != Denied {
			t.Errorf("one hold too many after the step, while the state is there: %+v", r)
		}
		if err := client.Del(ctx, key).Err(); err != nil { // as if it had expired
			t.Fatal(err)
		}
		if r := runOne(t, script, holdEntry(key, rule, lua.Hold, lua.MaxHolds+1, 1), epoch); r.Status != Allowed {
			t.Errorf("once the state has expired: %+v", r)
		}
		if r := runOne(t, script, holdEntry(key, rule, lua.Settle, 1, 1), epoch); r.Fitted != 0 {
			t.Errorf("the settlement of a hold that made room: %+v", r)
		}
		if r := runOne(t, script, holdEntry(key, rule, lua.Settle, lua.MaxHolds+1, 0), epoch); r.Fitted != 1 {
			t.Errorf("the settlement of the hold that got room: %+v", r)
		}
	}
}

// Law 3: a repeated settlement changes nothing, even in a batch with other entries of the key. Units beyond the
// held ones are charged once, however often the settlement is sent.
func TestLaw3ASettlementIsMadeOnce(t *testing.T) {
	script := NewScript(redistest.Shared(t).Client(t))
	for _, a := range configurations() {
		rule := newRule(t, limit.PerHour(100).WithBurst(100), a)
		key := redistest.Prefix() + "k"
		replies := runAll(t, script, []Entry{
			holdEntry(key, rule, lua.Hold, 1, 40), holdEntry(key, rule, lua.Hold, 2, 60),
			holdEntry(key, rule, lua.Settle, 1, 50), holdEntry(key, rule, lua.Settle, 1, 50), holdEntry(key, rule, lua.Settle, 1, 50),
			holdEntry(key, rule, lua.Settle, 2, 20), holdEntry(key, rule, lua.Settle, 2, 20),
			{Key: key, Rule: rule, Operation: lua.Peek, Cost: 1},
		})
		var told []int64
		for _, r := range replies {
			told = append(told, int64(r.Status), r.Granted, r.Remaining)
		}
		want := []int64{1, 40, 60, 1, 60, 0, 1, 10, 0, 0, 0, 0, 0, 0, 0, 1, 40, 30, 0, 0, 30, 1, 0, 30}
		if fmt.Sprint(told) != fmt.Sprint(want) {
			t.Errorf("%v: status, granted, remaining of each:\n%v, want\n%v", a, told, want)
		}
	}
}

// A value of holds of an unknown version is left unchanged, and only the entries that need it fail.
func TestUnknownHoldsAreLeftAlone(t *testing.T) {
	client, ctx := redistest.Shared(t).Client(t), context.Background()
	script, key := NewScript(client), redistest.Prefix()+"held"
	rule := newRule(t, limit.PerHour(100), limit.SlidingLog()).GivesBack()
	soon, late := string(appendInt(nil, time.Now().Add(time.Hour).UnixMicro(), 7)), strings.Repeat("\xff", 7)
	line := "hold id\x05\x01" + soon + soon + string(appendInt(nil, 1, 7))
	sound := "\x08" + soon + soon + line
	client.Set(ctx, key+":holds", sound, 0)
	if r := runAll(t, script, []Entry{holdEntry(key, rule, lua.Hold, 1, 1), holdEntry(key, rule, lua.Settle, 1, 0)}); r[0].Status != Allowed || r[1].Status != Allowed {
		t.Fatalf("a sound value: %+v", r)
	}
	for _, value := range []string{
		"", "\x08cut off", "\xff of a later version", "\x07" + sound[1:], sound + line[1:], sound + line[:1], "\x08" + late + soon + line, "\x08" + soon + late + line,
		"\x08" + soon + soon + strings.Repeat(line, lua.MaxHolds+1),
	} {
		client.Set(ctx, key+":holds", value, 0)
		replies := runAll(t, script, []Entry{
			holdEntry(key, rule, lua.Hold, 1, 1), holdEntry(key, rule, lua.Settle, 1, 1), holdEntry(key, rule, lua.Extend, 1, 1),
			{Key: key, Rule: rule, Operation: lua.Peek, Cost: 1},
		})
		for i, want := range []Status{Unreadable, Unreadable, Unreadable, Allowed} {
			if replies[i].Status != want {
				t.Errorf("%q: entry %d: %+v", value, i, replies[i])
			}
		}
		if got := client.Get(ctx, key+":holds").Val(); got != value || replies[3].Remaining != 100 {
			t.Errorf("%q became %q, with %d units free", value, got, replies[3].Remaining)
		}
	}
}

// Law 7: the bound on open holds also applies to a hold that is sent alone, for which the script has a separate
// path.
func TestLaw7ALoneHoldFindsNoRoom(t *testing.T) {
	client, ctx := redistest.Shared(t).Client(t), context.Background()
	script, key := NewScript(client), redistest.Prefix()+"full"
	rule := newRule(t, limit.PerHour(limit.MaxQuota), limit.FixedWindow())
	hold := func(id uint64) Status {
		t.Helper()
		return runAll(t, script, []Entry{holdEntry(key, rule, lua.Hold, id, 1)})[0].Status
	}
	if hold(1) != Allowed || hold(2) != Allowed {
		t.Fatal("two holds are not allowed")
	}
	text := client.Get(ctx, key+":holds").Val()
	head, line := text[:15], text[15:45]
	for room := range 2 {
		client.Set(ctx, key+":holds", head+strings.Repeat(line, lua.MaxHolds-room), time.Hour)
		if got, want := hold(3), []Status{Denied, Allowed}[room]; got != want {
			t.Errorf("with room for %d holds: %v, want %v", room, got, want)
		}
	}
}

// A settlement that is sent alone also knows whether the hold was given back before.
func TestALoneSettlementKnowsWhatWasGivenBack(t *testing.T) {
	script, key := NewScript(redistest.Shared(t).Client(t)), redistest.Prefix()+"given back"
	rule := newRule(t, limit.PerHour(100).WithBurst(100), limit.GCRA()).GivesBack()
	one := func(e Entry) Reply {
		t.Helper()
		return runAll(t, script, []Entry{e})[0]
	}
	one(Entry{Key: key, Rule: rule, Cost: 1})
	brief := holdEntry(key, rule, lua.Hold, 1, 40)
	brief.Hold.Life = time.Millisecond
	one(brief)
	redistest.Eventually(t, "the units are given back", func() bool {
		return one(Entry{Key: key, Rule: rule, Operation: lua.Peek, Cost: 1}).Remaining >= 98
	})
	if r := one(holdEntry(key, rule, lua.Settle, 1, 0)); r.Status != Allowed || r.Fitted != 2 || r.Granted != 0 {
		t.Errorf("settled with nothing: %+v, want it known that it was given back", r)
	}
}

// A settlement that is sent alone gives nothing back if its fixed window began after the hold, although other units
// were charged in that window.
func TestALoneSettlementGivesBackNothingInAnotherWindow(t *testing.T) {
	script, key := NewScript(redistest.Shared(t).Client(t)), redistest.Prefix()+"window"
	const window = 500 * time.Millisecond
	rule := newRule(t, limit.Per(10, window), limit.FixedWindow())
	one := func(e Entry) Reply {
		t.Helper()
		return runAll(t, script, []Entry{e})[0]
	}
	redistest.Eventually(t, "the hold was settled in the window in which others were charged", func() bool {
		id := uint64(time.Now().UnixNano())
		if r := one(holdEntry(key, rule, lua.Hold, id, 4)); r.Status != Allowed {
			return false // this window is full
		}
		redistest.Eventually(t, "another window has begun", func() bool {
			return one(Entry{Key: key, Rule: rule, Operation: lua.Peek, Cost: 1}).Remaining == 10
		})
		taken := one(Entry{Key: key, Rule: rule, Cost: 3})
		settled := one(holdEntry(key, rule, lua.Settle, id, 0))
		if taken.Clock/window.Microseconds() != settled.Clock/window.Microseconds() {
			return false
		}
		if settled.Status != Allowed || settled.Granted != 0 || settled.Remaining != 7 {
			t.Errorf("settled with nothing: %+v, want nothing given back and 7 units free", settled)
		}
		return true
	})
}

// Settlements that share an entry say what is free in the present window, after that of their holds has ended.
func TestJoinedSettlementsAfterTheirWindow(t *testing.T) {
	script, key := NewScript(redistest.Shared(t).Client(t)), redistest.Prefix()+"k"
	rule := newRule(t, limit.Per(10, time.Minute), limit.FixedWindow())
	start := int64(epoch) - epoch%time.Minute.Microseconds()
	run := func(at int64, e Entry) Reply {
		t.Helper()
		return runOne(t, script, e, at)
	}
	for id := range uint64(3) {
		run(start+1, holdEntry(key, rule, lua.Hold, id+1, 3))
	}
	settle, other := holdEntry(key, rule, lua.Settle, 1, 1), holdEntry(key, rule, lua.Settle, 2, 1)
	if !settle.joinHold(&other) {
		t.Fatal("they share no entry")
	}
	if r := run(start+time.Minute.Microseconds()+1, settle); r.Remaining != 10 || r.ResetAfter != 0 {
		t.Errorf("%+v, want 10 free, and nothing to reset", r)
	}
}

// A log gives back the units of the hold itself. If a refund has given back some of these, as the oldest at that time, the
// oldest units are given back for them, and not those that were charged just before the hold.
func TestASettlementOfALogGivesBackTheOldestForTheHoldsOwn(t *testing.T) {
	const second = int64(1_000_000)
	for _, a := range []limit.Algorithm{limit.SlidingLog(), limit.SlidingLogZSet()} {
		script, key := NewScript(redistest.Shared(t).Client(t)), redistest.Prefix()+"own"
		rule := newRule(t, limit.PerMinute(20), a)
		run := func(at int64, e Entry) Reply {
			t.Helper()
			e.Key, e.Rule = key, rule
			replies, err := script.Run(t.Context(), []Entry{e}, epoch+at*second)
			if err != nil {
				t.Fatal(err)
			}
			return replies[0]
		}
		run(0, holdEntry("", nil, lua.Hold, 1, 4))
		taken := run(1, Entry{Cost: 3})
		run(2, Entry{Operation: lua.Refund, Cost: 3, Charged: 3, Stamp: taken.Stamp}) // one unit of the hold is left
		run(3, past("", nil, 1, Charge{5, 10 * time.Second}, Charge{2, 20 * time.Second}))
		if r := run(4, holdEntry("", nil, lua.Settle, 1, 0)); r.Granted != 4 || r.Remaining != 13 {
			t.Errorf("%v: settled with nothing: %+v, want 4 given back and 13 free", a, r)
		}
		// The hold's unit is gone, and of the older ones the two of second -17 and one of second -7.
		if r := run(4, Entry{Operation: lua.Peek, Cost: 14}); r.RetryAfter != (60-7-4)*time.Second {
			t.Errorf("%v: %+v, want the next unit %d s later", a, r, 60-7-4)
		}
		if r := run(54, Entry{Operation: lua.Peek, Cost: 1}); r.Remaining != 17 {
			t.Errorf("%v: %d units free after the older ones have left, want 17: all but those of second 1", a, r.Remaining)
		}
	}
}
