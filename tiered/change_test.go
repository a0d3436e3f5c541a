package tiered

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/plan"
)

// A rule that is changed at run time keeps the units charged so far, in Redis and for an outage.
func TestChangeRuleKeepsTheCounts(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	small := newRule(t, l, "r", limit.PerHour(10))
	mustAllow(t, small, "k", 10)
	if d := mustAllow(t, small, "k", 1); d.Allowed {
		t.Fatalf("%+v", d)
	}

	large, err := l.ChangeRule("r", limit.PerHour(15))
	if err != nil {
		t.Fatal(err)
	}
	// The grant comes at once, although a denial under the small limit is remembered.
	if d := mustAllow(t, large, "k", 5); !d.Allowed || d.Remaining != 0 {
		t.Errorf("%+v", d)
	}
	counted, err := l.ChangeRule("r", limit.PerHour(16), Use(limit.SlidingCounter(4, limit.Strict)))
	if err != nil {
		t.Fatal(err)
	}
	if d := mustAllow(t, counted, "k", 1); !d.Allowed || d.Remaining != 0 {
		t.Errorf("%+v", d)
	}
	// Callers that still use the small rule get correct decisions.
	if d := mustAllow(t, small, "k", 1); d.Allowed {
		t.Errorf("%+v", d)
	}
	if again, err := l.Rule("r", limit.PerHour(16), Use(limit.SlidingCounter(4, limit.Strict))); err != nil || again != counted {
		t.Errorf("%v, %v: not the rule in force", again, err)
	}
	l.shard.Breaker.ForceOpen(errors.New("killed"))
	if d := mustAllow(t, counted, "k", 1); d.Allowed || !d.Degraded() {
		t.Errorf("in an outage: %+v", d)
	}
	if _, err := l.ChangeRule("r", limit.Limit{}); err == nil {
		t.Error("an invalid limit was put in force")
	}
}

// RetryAfter is exact even right after a change of a GCRA rule. Until a unit is charged under the new limit, each
// request converts the old debt again, and must compute the same end of the wait.
func TestWaitsAfterAChangeOfGCRAAreExact(t *testing.T) {
	const seconds = 1_790_000_000
	for _, c := range []struct{ before, after limit.Limit }{
		{limit.PerHour(1).WithBurst(1), limit.PerHour(3600).WithBurst(1)}, // the wait follows from the new rate
		{limit.PerHour(3600).WithBurst(1), limit.PerHour(1).WithBurst(1)},
		{limit.PerMinute(7).WithBurst(5), limit.PerMinute(11).WithBurst(3)},
		{limit.Per(23, 5_046_425*time.Microsecond), limit.Per(3, 1_233_044*time.Microsecond)},
		{limit.Per(3, 1_233_044*time.Microsecond), limit.Per(23, 5_046_425*time.Microsecond).WithBurst(2)},
	} {
		clock := &virtual{}
		set := func(to time.Duration) { clock.micros.Store(time.Unix(seconds, 0).Add(to).UnixMicro()) }
		set(0)
		l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), RememberDenials(0), VirtualClock(clock.now))
		rule := newRule(t, l, "r", c.before, Use(limit.GCRA()))
		mustAllow(t, rule, "k", c.before.Burst())
		rule, err := rule.WithLimit(c.after)
		if err != nil {
			t.Fatal(err)
		}
		d := mustAllow(t, rule, "k", 1)
		if most := c.after.Window() / time.Duration(c.after.Quota()) * time.Duration(c.before.Burst()); d.Allowed || d.RetryAfter > most {
			t.Errorf("%v, then %v: %+v, want a wait of %v at most", c.before, c.after, d, most)
		}
		for _, early := range []time.Duration{(d.RetryAfter / 2).Truncate(time.Microsecond), time.Microsecond} {
			set(d.RetryAfter - early)
			if again := mustAllow(t, rule, "k", 1); again.Allowed || again.RetryAfter != early {
				t.Errorf("%v, then %v, %v before the end of the wait: %+v", c.before, c.after, early, again)
			}
		}
		set(d.RetryAfter)
		if again := mustAllow(t, rule, "k", 1); !again.Allowed {
			t.Errorf("%v, then %v, at the end of the wait: %+v", c.before, c.after, again)
		}
	}
}

// A virtual clock may start in 1970. The calendar window of that moment, or the window before it, began in 1969,
// which cannot be expressed in Redis.
func TestCalendarWindowsThatBeganBefore1970(t *testing.T) {
	clock := &virtual{}
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), VirtualClock(clock.now))
	r := newRule(t, l, "r", limit.PerCalendar(5, limit.CalendarMonth, time.FixedZone("CET", 3600)))
	for _, now := range []time.Duration{time.Second, 31*24*time.Hour - 2*time.Hour, 31*24*time.Hour - time.Hour} {
		clock.micros.Store(now.Microseconds())
		_, end := r.Limit().Calendar(clock.now())
		d := mustAllow(t, r, "k", 2)
		if d.Tier != limit.TierRedis || !d.Allowed || d.ResetAfter != end.Sub(clock.now()) {
			t.Errorf("%v into 1970: %+v, want a reset after %v", now, d, end.Sub(clock.now()))
		}
	}
}

// In a sorted set, the marks stay below all time stamps, even if the stamps are smaller than the window, under a
// virtual clock that starts in 1970.
func TestSortedSetInTheFirstWindowOf1970(t *testing.T) {
	clock := &virtual{}
	clock.micros.Store(1)
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), VirtualClock(clock.now))
	r := newRule(t, l, "r", limit.PerHour(5), Use(limit.SlidingLogZSet()))
	for _, c := range []struct {
		now  time.Duration
		free int64
	}{{time.Microsecond, 3}, {time.Second, 1}, {time.Hour, 1}, {time.Hour + time.Microsecond, 1}} {
		clock.micros.Store(c.now.Microseconds())
		if d := mustAllow(t, r, "k", 2); d.Tier != limit.TierRedis || d.Remaining != c.free || d.Allowed != (c.now != time.Hour) {
			t.Errorf("%v into 1970: %+v, want %d left", c.now, d, c.free)
		}
	}
}

// A time zone that is loaded twice yields two locations, but the rules' settings are equal. Zones with the same
// name and different offsets are not equal.
func TestCalendarRuleTwice(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	perMonth := func() limit.Limit {
		lim, err := limit.Parse("5000/month@Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		return lim
	}
	first := newRule(t, l, "r", perMonth())
	if again, err := l.Rule("r", perMonth()); err != nil || again != first {
		t.Errorf("%v, %v: not the same rule", again, err)
	}
	other, err := l.PrepareRule("r", perMonth())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.PutInForceFrom("a file", other); err != nil {
		t.Error(err)
	}

	perDay := func(offset int) limit.Limit {
		return limit.PerCalendar(5, limit.CalendarDay, time.FixedZone("here", offset))
	}
	newRule(t, l, "fixed", perDay(3600))
	if _, err := l.Rule("fixed", perDay(3600)); err != nil {
		t.Error(err)
	}
	for what, lim := range map[string]limit.Limit{
		"another offset": perDay(7200),
		"another quota":  limit.PerCalendar(6, limit.CalendarDay, time.FixedZone("here", 3600)),
		"another unit":   limit.PerCalendar(5, limit.CalendarWeek, time.FixedZone("here", 3600)),
		"no calendar":    limit.PerDay(5),
	} {
		var conflict *ConflictError
		if _, err := l.Rule("fixed", lim); !errors.As(err, &conflict) {
			t.Errorf("%s: %v, want a conflict", what, err)
		}
	}
}

// A setting that spells out its default value equals one that is left out, so that a file may repeat the settings
// of a rule in the program.
func TestDefaultsMayBeStated(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	rate, slots := limit.PerMinute(5), limit.Concurrent(5)
	for name, c := range map[string]struct {
		limit         limit.Limit
		stated, other RuleOption
	}{
		"outage":    {rate, OnOutage(Approximate), OnOutage(Deny)},
		"unsettled": {rate, Unsettled(Keep), Unsettled(GiveBack)},
		"denials":   {rate, DenialLife(time.Second), DenialLife(0)},
		"ttl":       {slots, SlotTTL(10 * time.Second), SlotTTL(time.Second)},
	} {
		first := newRule(t, l, name, c.limit)
		if again, err := l.Rule(name, c.limit, c.stated); err != nil || again != first {
			t.Errorf("%s: %v, %v: not the same rule", name, again, err)
		}
		if _, err := l.Rule(name, c.limit, c.other); !errors.Is(err, limit.ErrInvalidRule) {
			t.Errorf("%s, not the default: %v", name, err)
		}
	}
}

// Whichever setting two rules of a name differ in, the error says it: two equal descriptions would tell nobody what to
// change.
func TestAConflictNamesTheSettingThatDiffers(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	rate, slots := limit.PerMinute(5000), limit.Concurrent(5)
	for name, c := range map[string]struct {
		limit limit.Limit
		other RuleOption
		named string
	}{
		"algorithm":    {rate, Use(newRule(t, l, "chosen", rate).Algorithm()), "by default"},
		"need":         {rate, Need(plan.Need{Above: plan.AtMost(0)}), "by need"},
		"outage":       {rate, OnOutage(Deny), "outage deny"},
		"dry-run":      {rate, DryRun(), "dry run"},
		"lease":        {rate, Lease(10), "lease 10 %"},
		"lease-within": {rate, LeaseWithinLimit(10), "lease within limit 10 %"},
		"denials":      {rate, DenialLife(time.Millisecond), "denials remembered for 1ms"},
		"unsettled":    {rate, Unsettled(GiveBack), "unsettled give back"},
		"hold":         {rate, HoldLife(time.Minute), "hold 1m0s"},
		"shadow":       {rate, Shadow(0.5), "shadow 0.5"},
		"ttl":          {slots, SlotTTL(time.Second), "slot TTL 1s"},
	} {
		newRule(t, l, name, c.limit)
		_, err := l.Rule(name, c.limit, c.other)
		if err == nil || strings.Count(err.Error(), c.named) != 1 {
			t.Errorf("%s: %v, want %q once", name, err, c.named)
		}
	}
}

// A file's rule that the program puts in force itself stays when the file leaves it out.
func TestARuleThatTheProgramHasTakenOverStays(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	r, err := l.PrepareRule("r", limit.PerHour(5))
	if err == nil {
		err = errors.Join(l.PutInForceFrom("a file", r), l.PutInForce(r), l.PutInForceFrom("a file"))
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Rule("r", limit.PerHour(6)); !errors.Is(err, limit.ErrInvalidRule) {
		t.Errorf("another rule of the name: %v", err)
	}
}

// Units that were charged before a change are given back, and settled, under the rule in force. Otherwise each of them would
// convert the key's state to the old algorithm, and count as used what is free: a limit that is raised so far that GCRA is
// chosen for it would deny everything while holds of the old rule are settled.
func TestSettlementsAfterAChangeDenyNothing(t *testing.T) {
	const holds, units = 20, 500
	put := map[string]func(l *Limiter, r *Rule) error{
		"ChangeRule": func(l *Limiter, r *Rule) error { return l.PutInForce(r) },
		"a source":   func(l *Limiter, r *Rule) error { return l.PutInForceFrom("rules.yaml", r) },
	}
	for name, put := range put {
		t.Run(name, func(t *testing.T) {
			l, ctx := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix()), t.Context()
			inForce := func(n int64) *Rule {
				t.Helper()
				r, err := l.PrepareRule("tokens", limit.PerMinute(n))
				if err == nil {
					err = put(l, r)
				}
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			small := inForce(100_000)
			var open []*Hold
			var charged []limit.Decision
			for range holds {
				h, d, err := small.Hold(ctx, "k", units, time.Minute)
				if err != nil || h == nil {
					t.Fatalf("%+v, %v", d, err)
				}
				open, charged = append(open, h), append(charged, mustAllow(t, small, "k", units))
			}
			large := inForce(200_000)
			if large.Algorithm() == small.Algorithm() {
				t.Fatalf("both count by %v", large.Algorithm())
			}
			allowed := func(after string) {
				t.Helper()
				if d := mustAllow(t, large, "k", 1000); !d.Allowed {
					t.Fatalf("after %s: %+v", after, d)
				}
			}
			for i, h := range open {
				if err := h.Settle(ctx, []int64{0, units / 2, units, 2 * units}[i%4]); err != nil {
					t.Fatal(err)
				}
				allowed("a settlement")
				if err := small.Refund(ctx, "k", &charged[i], units); err != nil {
					t.Fatal(err)
				}
				allowed("a refund")
				if err := small.ChargeUsed(ctx, "k", 1); err != nil {
					t.Fatal(err)
				}
				allowed("a charge of used units")
			}
		})
	}
}

// The same is true for the unspent units of a lease that was granted before the change.
func TestLeasesThatEndAfterAChangeDenyNothing(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	small := newRule(t, l, "r", limit.PerHour(1000), Use(limit.SlidingCounter(4, limit.Strict)), Lease(20))
	spent := spendUntilLeased(t, small, "k")
	large, err := l.ChangeRule("r", limit.PerHour(2000).WithBurst(2000), Use(limit.GCRA()))
	if err != nil {
		t.Fatal(err)
	}
	mustAllow(t, large, "k", 1)
	redistest.Eventually(t, "the lease is given back", func() bool { return left(t, large, "k") >= 2000-spent-1 })
}

// A copy takes over from another one only if the program says so, and only from one that counts the same.
func TestCopiesTakeOver(t *testing.T) {
	l, ctx := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix()), t.Context()
	tokens := newRule(t, l, "tokens", limit.PerMinute(1000))
	copyOf := func(n int64) *Rule {
		t.Helper()
		r, err := tokens.WithLimit(limit.PerMinute(n))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	small, large := copyOf(100_000), copyOf(200_000)
	if large.Algorithm() == small.Algorithm() {
		t.Fatalf("both count by %v", large.Algorithm())
	}
	hold := mustHold(t, small, "k", 500, time.Minute)
	if err := large.TakeOver(small); err != nil {
		t.Fatal(err)
	}
	mustAllow(t, large, "k", 1000)
	if err := hold.Settle(ctx, 100); err != nil {
		t.Fatal(err)
	}
	if free := left(t, large, "k"); free < large.Limit().Burst()-1100 {
		t.Errorf("%d units of %d are free after 1100 were used", free, large.Limit().Burst())
	}
	// Back and forth is no circle.
	if err := errors.Join(small.TakeOver(large), large.TakeOver(large), small.TakeOver(small)); err != nil {
		t.Fatal(err)
	}
	if small.inOutage.Latest() != small.inOutage || large.inOutage.Latest() != small.inOutage {
		t.Error("the first one is not the latest of both")
	}

	elsewhere := newRule(t, newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix()), "tokens", limit.PerMinute(1000))
	for what, c := range map[string]struct {
		other *Rule
		word  string
	}{
		"nil":                {nil, "nil"},
		"of another limiter": {elsewhere, "another limiter"},
		"of another name":    {newRule(t, l, "other", limit.PerMinute(1000)), `"other"`},
	} {
		if err := small.TakeOver(c.other); !errors.Is(err, limit.ErrInvalidRule) || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: %v", what, err)
		}
	}
	jobs, err := l.PrepareRule("tokens", limit.Concurrent(3))
	if err != nil {
		t.Fatal(err)
	}
	if err := small.TakeOver(jobs); !errors.Is(err, limit.ErrInvalidRule) || !strings.Contains(err.Error(), "3") {
		t.Errorf("of another kind: %v", err)
	}
}

// A program may keep the rule that it began with, and hold units under it, however often the rule is changed. It then
// keeps the newest rule as well, but none of those in between.
func TestLaw7RulesThatWereReplacedAreForgotten(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	first := newRule(t, l, "r", limit.PerHour(10))
	between := make([]weak.Pointer[Rule], 20)
	for i := range between {
		r, err := l.ChangeRule("r", limit.PerHour(int64(20+i)))
		if err != nil {
			t.Fatal(err)
		}
		between[i] = weak.Make(r)
	}
	newest, err := l.ChangeRule("r", limit.PerHour(5))
	if err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "the rules in between are freed", func() bool {
		runtime.GC()
		return !slices.ContainsFunc(between, func(r weak.Pointer[Rule]) bool { return r.Value() != nil })
	})
	if first.inOutage.Latest() != newest.inOutage {
		t.Error("the newest rule has not taken over from the first")
	}
}
