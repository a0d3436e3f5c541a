package remote

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

func past(key string, rule *Rule, sequence int64, charges ...Charge) Entry {
	return Entry{Key: key, Rule: rule, Operation: lua.Charge, Marker: "instance", Sequence: sequence, Charges: charges}
}

// Law 3: a charge of the past whose reply was lost is repeated, with new ages, until it is answered, and is made
// only once. This holds on one node and, with pipelines, on a Cluster.
func TestLaw3ChargesAreAppliedOnce(t *testing.T) {
	t.Parallel()
	var lose atomic.Bool
	t.Run("one node", func(t *testing.T) {
		client := redistest.Start(t).Client(t, func(o *redis.Options) { o.Dialer = dialLosing(&lose) })
		checkChargedOnce(t, &lose, client)
	})
	t.Run("cluster", func(t *testing.T) {
		client := redistest.StartCluster(t, 3).Client(t, func(o *redis.ClusterOptions) { o.Dialer = dialLosing(&lose) })
		checkChargedOnce(t, &lose, client)
	})
}

func checkChargedOnce(t *testing.T, lose *atomic.Bool, client redis.UniversalClient) {
	script := NewScript(client)
	for i, a := range configurations() {
		l := limit.PerDay(1000).WithBurst(1000)
		rule := newRule(t, l, a).Named(newKeyspace(t, "tl"), fmt.Sprint("once-", i), nil)
		var charges, peeks []Entry
		for i := range 12 {
			charges = append(charges, past(fmt.Sprint(i), rule, 1, Charge{7, 0}, Charge{5, 0}))
			peeks = append(peeks, Entry{Key: fmt.Sprint(i), Rule: rule, Operation: lua.Peek, Cost: 1})
		}
		if _, err := script.Run(context.Background(), peeks, 0); err != nil { // loads the script
			t.Fatal(err)
		}
		lose.Store(true)
		for range 3 {
			if replies, err := script.Run(context.Background(), charges, 0); err == nil {
				t.Errorf("%v: replies %+v although they were lost", a, replies)
			}
		}
		lose.Store(false)
		for _, sequence := range []int64{1, 2, 1} {
			for i := range charges {
				charges[i].Sequence = sequence
			}
			want := int64(0)
			if sequence == 2 {
				want = 12
			}
			for i, r := range runAll(t, script, charges) {
				if r.Status != Allowed || r.Granted != want {
					t.Errorf("%v, sequence %d, key %d: %+v, want %d granted", a, sequence, i, r, want)
				}
			}
		}
		for i, r := range runAll(t, script, peeks) {
			// GCRA's units return one by one.
			if used := 1000 - r.Remaining; used > 24 || used < 24 && (a != limit.GCRA() || used < 20) {
				t.Errorf("%v, key %d: %d units charged, want 24", a, i, used)
			}
		}
	}
}

func runAll(t *testing.T, script *Script, entries []Entry) []Reply {
	t.Helper()
	replies, err := script.Run(context.Background(), entries, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range replies {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	return replies
}

// Law 4: a late charge charges nothing and leaves no marker. Repeated in time, it charges the units and leaves a
// marker.
func TestLaw4LateChargesAreNotMade(t *testing.T) {
	script := NewScript(redistest.Shared(t).Client(t))
	key, rule := redistest.Prefix()+"late", newRule(t, limit.PerHour(100), limit.SlidingLog())
	late := past(key, rule, 1, Charge{9, 0})
	late.NotAfter = 1
	if r := runAll(t, script, []Entry{late})[0]; r.Status != Expired || r.Granted != 0 {
		t.Errorf("%+v", r)
	}
	late.NotAfter = 0
	if r := runAll(t, script, []Entry{late})[0]; r.Status != Allowed || r.Granted != 9 || r.Remaining != 91 {
		t.Errorf("%+v", r)
	}
}

// Under GCRA, the debt of units of two windows ago has been paid off since they were granted, and not only since
// they were charged.
func TestChargesKeepTheirAge(t *testing.T) {
	script := NewScript(redistest.Shared(t).Client(t))
	const window = limit.MaxWindow
	rule := newRule(t, limit.Per(2, window), limit.GCRA())
	r := runAll(t, script, []Entry{past(redistest.Prefix()+"old", rule, 1,
		Charge{1, window / 2}, Charge{1, window}, Charge{1, window + time.Microsecond}, Charge{2, 5 * window / 2})})[0]
	if want := window/2 - time.Microsecond; r.ResetAfter != want {
		t.Errorf("debt for %v, want %v", r.ResetAfter, want)
	}
}

// A unit of the past counts in a log until it is one window old, and then no longer.
func TestChargesOfAWindowAgoDoNotCount(t *testing.T) {
	script := NewScript(redistest.Shared(t).Client(t))
	for _, a := range []limit.Algorithm{limit.SlidingLog(), limit.SlidingLogZSet()} {
		rule, key := newRule(t, limit.PerMinute(10), a), redistest.Prefix()+"old"
		for i, age := range []time.Duration{time.Minute, time.Minute - time.Microsecond} {
			r := runAll(t, script, []Entry{past(key, rule, int64(i)+1, Charge{3, age})})[0]
			if r.Granted != int64(3*i) {
				t.Errorf("%v: %d units of %v ago count: %+v", a, r.Granted, age, r)
			}
		}
	}
}

// Law 8: a key with units of the past expires when they no longer matter, as if they had been charged in time. An
// older charge does not shorten the life of the key, and no charge prolongs the life beyond the charge's own
// window. Units that have left the window change nothing. The marker expires a minute after the key, but ten
// minutes after the charge at the latest.
func TestLaw8ChargedKeysExpireWhenTheyNoLongerMatter(t *testing.T) {
	client, ctx := redistest.Shared(t).Client(t), context.Background()
	script := NewScript(client)
	l := limit.Per(700, 90*time.Second+123*time.Microsecond).WithBurst(700)
	for _, a := range configurations() {
		t.Run(a.String(), func(t *testing.T) {
			rule, key := newRule(t, l, a), redistest.Prefix()+"charged"
			check := func(what string, r Reply) {
				t.Helper()
				want := expiryOf(l, a, r)
				if got := pexpireTime(t, client, key); got != want {
					t.Errorf("%s: expires at %d ms, matters until %d ms", what, got, want)
				}
			}
			if r := runAll(t, script, []Entry{past(key, rule, 1, Charge{100, 10 * time.Minute})})[0]; a != limit.GCRA() &&
				(r.Granted != 0 || client.Exists(ctx, key).Val() != 0) {
				t.Errorf("units that have left: %+v", r)
			}
			young := runAll(t, script, []Entry{past(key, rule, 2, Charge{300, time.Second / 2}, Charge{20, time.Minute})})[0]
			if young.Granted == 0 {
				if a != limit.FixedWindow() {
					t.Fatalf("%+v", young)
				}
				return // a window has just begun, and the units belong to the one before
			}
			check("young units", young)
			if r := young.ResetAfter; a.Same(limit.SlidingLog()) && (r > l.Window()-time.Second/2 || r < l.Window()-time.Second/2-time.Millisecond) {
				t.Errorf("units of half a second ago matter for %v", r)
			}
			old := runAll(t, script, []Entry{past(key, rule, 3, Charge{1, 30 * time.Second})})[0]
			if old.ResetAfter < young.ResetAfter-10*time.Second {
				t.Errorf("an older unit shortened what matters from %v to %v", young.ResetAfter, old.ResetAfter)
			}
			if old.Granted == 0 { // the debt of a single unit was paid off long ago
				check("older units of no consequence", young)
			} else {
				check("older units", old)
			}
			check("a decision after them", decide(t, script, key, rule, 0, 1))

			marker := markerKey(key, "instance")
			if text := client.Get(ctx, marker).Val(); text != "3" {
				t.Errorf("the marker is %q", text)
			}
			life, longest := client.PTTL(ctx, marker).Val(), min(10*time.Minute, time.Minute+old.ResetAfter+time.Millisecond)
			if life < longest-5*time.Second || life > longest {
				t.Errorf("the marker lives %v, the charge matters for %v", life, old.ResetAfter)
			}
		})
	}
}

// A marker with foreign content is left unchanged, and the units of its charge are not charged.
func TestForeignMarkersAreLeftAlone(t *testing.T) {
	client, ctx := redistest.Shared(t).Client(t), context.Background()
	script, rule := NewScript(client), newRule(t, limit.PerHour(100), limit.SlidingLog())
	text, list := redistest.Prefix()+"text", redistest.Prefix()+"list"
	client.Set(ctx, markerKey(text, "instance"), "something else", time.Minute)
	client.LPush(ctx, markerKey(list, "instance"), "1")
	for i, r := range runAll(t, script, []Entry{past(text, rule, 1, Charge{9, 0}), past(list, rule, 1, Charge{9, 0})}) {
		if r.Status != Unreadable {
			t.Errorf("%d: %+v", i, r)
		}
	}
	if client.Exists(ctx, text, list).Val() != 0 || client.Get(ctx, markerKey(text, "instance")).Val() != "something else" {
		t.Error("something was written")
	}
}

// Law 10: charges of the past also remove units that have left the window. Otherwise their stamps,
// which are stored modulo 12.7 days, would be mistaken for recent ones.
func TestLaw10UnitsOfThePastPushOutWhatHasLeft(t *testing.T) {
	script := NewScript(redistest.Shared(t).Client(t))
	const day = 86_400_000_000
	rule, key := newRule(t, limit.Per(20, 72*time.Hour), limit.SlidingLog()), redistest.Prefix()+"left"
	for i := range int64(10) {
		replies, err := script.Run(context.Background(), []Entry{past(key, rule, i+1, Charge{1, time.Hour})}, epoch+i*4*day)
		if err != nil || replies[0].Remaining != 19 {
			t.Fatalf("charge %d: %+v, %v", i, replies, err)
		}
	}
}

// Law 11: units charged under a smaller limit of another algorithm, for example by an instance that has not heard
// of a change yet, leave the units granted under the larger limit charged.
func TestLaw11ChargesUnderASmallerLimit(t *testing.T) {
	script := NewScript(redistest.Shared(t).Client(t))
	ctx := context.Background()
	for _, large := range configurations() {
		for _, small := range configurations() {
			if large.Same(limit.GCRA()) || small.Same(limit.GCRA()) || small == large || large.Same(limit.FixedWindow()) || small.Same(limit.FixedWindow()) {
				continue // these algorithms remember less
			}
			key := redistest.Prefix() + "smaller"
			larger, smaller := newRule(t, limit.PerHour(100), large), newRule(t, limit.PerHour(30), small)
			run := func(e Entry) Reply {
				t.Helper()
				replies, err := script.Run(ctx, []Entry{e}, epoch)
				if err != nil || replies[0].Err != nil {
					t.Fatalf("%+v, %v", replies, err)
				}
				return replies[0]
			}
			run(Entry{Key: key, Rule: larger, Operation: lua.Take, Cost: 70})
			for i, free := range []int64{20, 10, 0} {
				if r := run(past(key, smaller, int64(i+1), Charge{10, time.Minute})); r.Granted != 10 {
					t.Errorf("%v, then %v: %+v", large, small, r)
				}
				if r := run(Entry{Key: key, Rule: larger, Operation: lua.Peek, Cost: 1}); r.Remaining != free {
					t.Errorf("%v with 70 of 100 units, and then %d charged under %v: %d are free, want %d", large, 10*(i+1), small, r.Remaining, free)
				}
			}
		}
	}
}

// Law 1: a refund or settlement under a smaller limit of another algorithm removes only its own units from what was
// granted under the larger limit.
func TestLaw1GivingBackUnderASmallerLimit(t *testing.T) {
	script := NewScript(redistest.Shared(t).Client(t))
	for _, large := range configurations() {
		for _, small := range configurations() {
			if large.Same(limit.GCRA()) || small.Same(limit.GCRA()) || small == large {
				continue // GCRA remembers less
			}
			larger, smaller := newRule(t, limit.PerHour(100), large), newRule(t, limit.PerHour(30), small)
			for name, test := range map[string]struct {
				entry Entry
				free  int64
			}{
				"denied":       {Entry{Rule: smaller, Operation: lua.Take, Cost: 1}, 30},
				"peek":         {Entry{Rule: smaller, Operation: lua.Peek, Cost: 1}, 30},
				"refund":       {Entry{Rule: smaller, Operation: lua.Refund, Cost: 4, Charged: 10, Stamp: epoch}, 34},
				"used less":    {holdEntry("", smaller, lua.Settle, 1, 6), 34},
				"used more":    {holdEntry("", smaller, lua.Settle, 1, 13), 27},
				"extend":       {holdEntry("", smaller, lua.Extend, 1, 0), 30},
				"end of lease": {Entry{Rule: smaller, Operation: lua.Lease, Lease: &Lease{ID: 2, Over: 1, Most: 10, Life: time.Second}}, 30},
			} {
				key := redistest.Prefix() + "given back"
				run := func(e Entry) Reply {
					t.Helper()
					e.Key = key
					replies, err := script.Run(context.Background(), []Entry{e}, epoch)
					if err != nil || replies[0].Err != nil {
						t.Fatalf("%+v, %v", replies, err)
					}
					return replies[0]
				}
				run(holdEntry("", smaller, lua.Hold, 1, 10))
				run(Entry{Rule: larger, Operation: lua.Take, Cost: 60})
				run(test.entry)
				if r := run(Entry{Rule: larger, Operation: lua.Peek, Cost: 1}); r.Remaining != test.free {
					t.Errorf("%v, %s under %v: %d of 100 are free, want %d", large, name, small, r.Remaining, test.free)
				}
			}
		}
	}
}

// Law 7: however many units of the past an instance charges, a log holds four times its limit at most.
func TestLaw7ChargesOfThePastAreBounded(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script := NewScript(client)
	var charges []Charge
	for i := range 300 {
		charges = append(charges, Charge{lua.MaxUnits, time.Duration(i) * time.Second})
	}
	for _, a := range []limit.Algorithm{limit.SlidingLog(), limit.SlidingLogZSet()} {
		rule, key := newRule(t, limit.PerHour(1000), a), redistest.Prefix()+"much"
		e := past(key, rule, 1, charges...)
		if work := e.work() / rule.unitWork; work < 1000 || work > 301*1000 {
			t.Errorf("%v: counted as %d units to write", a, work)
		}
		r := runAll(t, script, []Entry{e})[0]
		if r.Remaining != 0 || r.ResetAfter < 59*time.Minute {
			t.Errorf("%v: %+v", a, r)
		}
		if size := client.MemoryUsage(context.Background(), key).Val(); size > 500_000 {
			t.Errorf("%v: %d bytes", a, size)
		}
	}
}

// Law 3: the units of a log may count for a rule with a longer window, so the marker of their charge lives as long as
// for that rule.
func TestLaw3AChargeToALogOfTwoWindows(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script, key := NewScript(client), redistest.Prefix()+"k"
	short, long := newRule(t, limit.Per(100, time.Second), limit.SlidingLog()), newRule(t, limit.Per(100, time.Hour), limit.SlidingLog())
	runAll(t, script, []Entry{
		{Key: key, Rule: long, Cost: 1},
		{Key: key, Rule: short, Operation: lua.Charge, Charges: []Charge{{Units: 5}}, Marker: "a", Sequence: 1},
	})
	if life := client.PTTL(t.Context(), markerKey(key, "a")).Val(); life < ChargeRepeats-time.Second {
		t.Errorf("the marker lives for %v, want %v", life, ChargeRepeats)
	}
}

// Law 7: charges of the past never make a counter unreadable, however many and large they are.
func TestLaw7ACounterWithManyChargesOfThePast(t *testing.T) {
	script, key := NewScript(redistest.Shared(t).Client(t)), redistest.Prefix()+"k"
	rule := newRule(t, limit.Per(limit.MaxQuota, time.Hour), limit.SlidingCounter(4, limit.Estimate))
	quarter := 15 * time.Minute.Microseconds()
	for i := range 5 {
		charge := Entry{
			Key: key, Rule: rule, Operation: lua.Charge, Marker: string(rune('a' + i)), Sequence: 1,
			Charges: []Charge{{Units: 4 * limit.MaxQuota, Age: time.Hour}}, // in the oldest quarter, which is about to end
		}
		replies, err := script.Run(t.Context(), []Entry{charge}, epoch-epoch%quarter+quarter-10)
		if err != nil || replies[0].Status == Unreadable {
			t.Fatalf("charge %d: %+v, %v", i+1, replies, err)
		}
	}
}
