package remote

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// When a rule's algorithm changes, the units charged under the old algorithm count under the new one: a full key
// stays full, from every algorithm to every other.
func TestChangingTheAlgorithmGrantsNothing(t *testing.T) {
	script := NewScript(redistest.Shared(t).Client(t))
	l := limit.PerMinute(20).WithBurst(20)
	for _, from := range configurations() {
		for _, to := range configurations() {
			key := redistest.Prefix() + "changing"
			if d := decide(t, script, key, newRule(t, l, from), epoch, 20); d.Status != Allowed {
				t.Fatalf("%v: %+v", from, d)
			}
			rule := newRule(t, l, to)
			d := decide(t, script, key, rule, epoch+1_000, 1)
			// Under GCRA, part of a unit has returned by then; under no algorithm has a whole unit returned.
			if d.Status != Denied {
				t.Errorf("from %v to %v: %+v", from, to, d)
			}
			if d.RetryAfter > 2*time.Minute {
				t.Errorf("from %v to %v: locked for %v", from, to, d.RetryAfter)
			}
			later := decide(t, script, key, rule, epoch+1_000+d.RetryAfter.Microseconds(), 1)
			if later.Status != Allowed {
				t.Errorf("from %v to %v: still denied when it said to retry: %+v", from, to, later)
			}
		}
	}
}

// Units that a log takes over from another algorithm leave exactly one window after they were charged.
func TestUnitsThatALogTakesOverLeaveInTime(t *testing.T) {
	script, l := NewScript(redistest.Shared(t).Client(t)), limit.PerMinute(20)
	for _, from := range []limit.Algorithm{limit.SlidingLog(), limit.SlidingLogZSet(), limit.SlidingCounter(4, limit.Strict), limit.FixedWindow()} {
		for _, to := range []limit.Algorithm{limit.SlidingLog(), limit.SlidingLogZSet()} {
			key, rule := redistest.Prefix()+"taken over", newRule(t, l, to)
			decide(t, script, key, newRule(t, l, from), epoch, 20)
			gone := epoch + l.Window().Microseconds()
			if d := decide(t, script, key, rule, gone-1, 1); d.Status != Denied || d.RetryAfter != time.Microsecond {
				t.Errorf("from %v to %v, 1 µs before: %+v", from, to, d)
			}
			if d := decide(t, script, key, rule, gone, 1); d.Status != Allowed {
				t.Errorf("from %v to %v: %+v", from, to, d)
			}
		}
	}
}

// GCRA may have nothing to hand over: less than a unit of a key's debt is left if a refund came late.
func TestGCRAHandsOverLessThanAUnit(t *testing.T) {
	script, key := NewScript(redistest.Shared(t).Client(t)), redistest.Prefix()+"less"
	hourly := newRule(t, limit.PerHour(1), limit.GCRA())
	now := epoch + 30*time.Minute.Microseconds()
	decide(t, script, key, hourly, epoch, 1)
	for _, e := range []Entry{
		{Key: key, Rule: hourly, Operation: lua.Refund, Cost: 1, Charged: 1, Stamp: epoch},
		{Key: key, Rule: newRule(t, limit.PerMinute(1), limit.SlidingLog()), Operation: lua.Peek, Cost: 1},
	} {
		replies, err := script.Run(t.Context(), []Entry{e}, now)
		if err != nil || replies[0].Remaining != 1 {
			t.Errorf("%+v, %v, want one unit free", replies, err)
		}
	}
}

// If versions of a service have different limits and windows for the same key, the log decides each version's
// requests exactly like a log of that version's own that contains all units charged by any version.
func TestLogIsExactForEveryVersionOfALimit(t *testing.T) {
	script := NewScript(redistest.Shared(t).Client(t))
	rapid.Check(t, func(t *rapid.T) {
		type version struct {
			quota, window int64
			rule          *Rule
		}
		versions := make([]version, rapid.IntRange(2, 3).Draw(t, "versions"))
		longest := int64(0)
		for i := range versions {
			v := &versions[i]
			v.quota = rapid.Int64Range(1, 40).Draw(t, "quota")
			v.window = rapid.SampledFrom([]int64{50_000, 1_000_000, 60_000_000, 7 * 86_400_000_000}).Draw(t, "window")
			v.rule = newRule(t, limit.Per(v.quota, time.Duration(v.window)*time.Microsecond), limit.SlidingLog())
			longest = max(longest, v.window)
		}
		key := redistest.Prefix() + "versions"
		now := int64(epoch)
		var stamps []int64
		ask := func(v version, cost int64) {
			used := int64(0)
			for _, s := range stamps {
				if s > now-v.window {
					used++
				}
			}
			replies, err := script.Run(context.Background(), []Entry{{Key: key, Rule: v.rule, Cost: cost}}, now)
			if err != nil {
				t.Fatal(err)
			}
			allowed := used+cost <= v.quota
			if allowed {
				used += cost
				for range cost {
					stamps = append(stamps, now)
				}
			}
			got := replies[0]
			if (got.Status == Allowed) != allowed || got.Remaining != max(0, v.quota-used) {
				t.Fatalf("version %d per %d µs, cost %d: %+v, want allowed %v, %d remaining", v.quota, v.window, cost, got, allowed, max(0, v.quota-used))
			}
		}
		// The key knows of a version once that version has charged it.
		for _, v := range versions {
			ask(v, 1)
		}
		if len(stamps) < len(versions) {
			return // a version was denied at once, so the key does not know it
		}
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			now += rapid.OneOf(rapid.Int64Range(0, 20_000), rapid.Int64Range(0, 2_000_000), rapid.Int64Range(0, longest/2)).Draw(t, "gap")
			v := rapid.SampledFrom(versions).Draw(t, "version")
			ask(v, rapid.Int64Range(1, v.quota).Draw(t, "cost"))
		}
	})
}

// If a limit is raised beyond what the counter's bytes can hold, the counts are kept.
func TestRaisedLimitKeepsACountersCounts(t *testing.T) {
	script := NewScript(redistest.Shared(t).Client(t))
	for _, a := range []limit.Algorithm{limit.SlidingCounter(1, limit.Strict), limit.SlidingCounter(60, limit.Estimate)} {
		key := redistest.Prefix() + "raised"
		for i, quota := range []int64{200, 60_000, 10_000_000, 1 << 36} {
			d := decide(t, script, key, newRule(t, limit.PerHour(quota), a), epoch, 100)
			if used := int64(i+1) * 100; d.Status != Allowed || d.Remaining != quota-used {
				t.Errorf("%v raised to %d: %+v, want %d remaining", a, quota, d, quota-used)
			}
		}
	}
}

// If a window grows beyond the range of 5-byte stamps, the ring is rewritten with 6-byte stamps, once and exactly,
// whatever its size.
func TestLogWidensItsStamps(t *testing.T) {
	embedded, _ := redistest.Embedded(t)
	for _, script := range []*Script{NewScript(redistest.Shared(t).Client(t)), NewScript(embedded)} {
		key := redistest.Prefix() + "widened"
		const hour = 3_600_000_000
		hourly := newRule(t, limit.PerHour(3000), limit.SlidingLog())
		yearly := newRule(t, limit.Per(5000, limit.MaxWindow), limit.SlidingLog())
		decide(t, script, key, hourly, epoch, 1000)
		decide(t, script, key, hourly, epoch+hour/2, 2000)
		if d := decide(t, script, key, yearly, epoch+hour/2, 1500); d.Status != Allowed || d.Remaining != 500 {
			t.Errorf("%+v", d)
		}
		d := decide(t, script, key, yearly, epoch+hour, 1500)
		if want := limit.MaxWindow - time.Hour; d.Status != Denied || d.RetryAfter != want {
			t.Errorf("%+v, want retry after %v: when the first thousand leave", d, want)
		}
	}
}

// Law 8: a refund under a shorter window does not make the key expire sooner: under the longer window, what is left of
// its units still counts.
func TestLaw8ARefundUnderAShorterWindow(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script := NewScript(client)
	for _, a := range configurations() {
		long, short := newRule(t, limit.PerDay(10).WithBurst(10), a), newRule(t, limit.PerMinute(10).WithBurst(10), a)
		key := redistest.Prefix() + "refunded"
		refund := Entry{Key: key, Rule: short, Operation: lua.Refund, Cost: 1, Charged: 5}
		refund.Stamp = runAll(t, script, []Entry{{Key: key, Rule: long, Cost: 5}})[0].Stamp
		before := client.PTTL(t.Context(), key).Val()
		if r := runAll(t, script, []Entry{refund})[0]; r.Granted != 1 {
			continue // a minute of the shorter window has just begun
		}
		if after := client.PTTL(t.Context(), key).Val(); after < before-10*time.Second {
			t.Errorf("%v: the key lives for %v, and before the refund for %v", a, after, before)
		}
	}
}

// Laws 1 and 8: if the first write under a longer window is a refund, a log keeps its units for that window: it is not
// forgotten earlier, and its stamps become wide enough.
func TestLaws1And8ARefundUnderALongerWindow(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script := NewScript(client)
	short := newRule(t, limit.Per(10, time.Minute), limit.SlidingLog())
	for _, window := range []time.Duration{time.Hour, 30 * 24 * time.Hour} {
		long, key := newRule(t, limit.Per(10, window), limit.SlidingLog()), redistest.Prefix()+"refunded"
		refund := Entry{Key: key, Rule: long, Operation: lua.Refund, Cost: 1, Charged: 5}
		refund.Stamp = runAll(t, script, []Entry{{Key: key, Rule: short, Cost: 5}})[0].Stamp
		runAll(t, script, []Entry{refund})
		if ttl := client.PTTL(t.Context(), key).Val(); ttl < window {
			t.Errorf("window of %v: the key lives for %v", window, ttl)
		}

		key = redistest.Prefix() + "in virtual time"
		refund.Key, refund.Stamp = key, decide(t, script, key, short, epoch, 5).Stamp
		if _, err := script.Run(t.Context(), []Entry{refund}, epoch+1); err != nil {
			t.Fatal(err)
		}
		decide(t, script, key, long, epoch+2, 1)
		later := epoch + window.Microseconds()*2/3
		decide(t, script, key, long, later, 1)
		peek, err := script.Run(t.Context(), []Entry{{Key: key, Rule: long, Operation: lua.Peek, Cost: 1}}, epoch+window.Microseconds()+10)
		if err != nil || peek[0].Remaining != 9 {
			t.Errorf("window of %v: %+v, %v; want only the last unit to count", window, peek, err)
		}
	}
}
