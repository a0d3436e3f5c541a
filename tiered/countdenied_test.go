package tiered

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// With CountDenied, denied requests count. Each decision equals that of a counter that is incremented first and
// compared afterwards: with AllowN and AllowEach, with costs of 0, and for limits that share a count.
func TestCountDeniedIsIncrementThenCompare(t *testing.T) {
	clock := newVirtual()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), VirtualClock(clock.now))
	small := newRule(t, l, "hour", limit.PerHour(10), Use(limit.FixedWindow()), CountDenied(), DenialLife(0))
	large, err := small.WithLimit(limit.PerHour(40))
	if err != nil {
		t.Fatal(err)
	}
	rules, keys := []*Rule{small, large}, []string{"a", "b"}
	random := rand.New(rand.NewPCG(1, 2))
	type window struct {
		key   string
		start int64
	}
	counts := make(map[window]int64)
	check := func(q Request, d limit.Decision) {
		t.Helper()
		hour := time.Hour.Microseconds()
		w := window{q.Key, clock.micros.Load() / hour}
		counts[w] += q.Cost
		used, quota := counts[w], q.Rule.Limit().Quota()
		remaining := max(0, quota-used)
		allowed := used <= quota
		if q.Cost == 0 {
			allowed = used < quota
		}
		if d.Allowed != allowed || d.Used != used || d.Remaining != remaining || d.Limit != quota {
			t.Fatalf("cost %d of %v: %+v, want allowed %v, used %d, remaining %d", q.Cost, q.Rule.Limit(), d, allowed, used, remaining)
		}
		ends := time.Duration(hour-clock.micros.Load()%hour) * time.Microsecond
		if used > 0 && d.ResetAfter != ends || !d.Allowed && d.RetryAfter != ends {
			t.Fatalf("the window ends in %v: %+v", ends, d)
		}
	}
	one := func() Request {
		return Request{Rule: rules[random.IntN(2)], Key: keys[random.IntN(2)], Cost: random.Int64N(8)}
	}
	for range 500 {
		if random.IntN(20) == 0 {
			clock.advance(time.Duration(random.Int64N(int64(40 * time.Minute))))
		}
		if q := one(); q.Cost > 0 && random.IntN(2) == 0 {
			check(q, mustAllow(t, q.Rule, q.Key, q.Cost))
			continue
		}
		requests := make([]Request, 1+random.IntN(4)) // may contain the same request several times
		for i := range requests {
			requests[i] = one()
		}
		ds, err := l.AllowEach(context.Background(), requests...)
		if err != nil {
			t.Fatal(err)
		}
		for i, d := range ds {
			check(requests[i], d)
		}
	}
}

// Callers that share an entry of a batch get different decisions. The instance records as granted only the units
// within the limit.
func TestCountDeniedTogether(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), Deadline(5*time.Second))
	r := newRule(t, l, "day", limit.PerDay(100), Use(limit.FixedWindow()), CountDenied(), DenialLife(0))
	var allowed atomic.Int64
	var used sync.Map
	var callers sync.WaitGroup
	for range 32 {
		callers.Go(func() {
			for range 8 {
				d, err := r.AllowN(context.Background(), "k", 1)
				if err != nil || d.Allowed != (d.Used <= 100) {
					t.Errorf("%+v, %v", d, err)
				}
				if _, twice := used.LoadOrStore(d.Used, true); twice {
					t.Errorf("two callers were told of %d units", d.Used)
				}
				if d.Allowed {
					allowed.Add(1)
				}
			}
		})
	}
	callers.Wait()
	if n := allowed.Load(); n != 100 {
		t.Errorf("%d were allowed, want 100", n)
	}
	if n := recorded(r, "k"); n != 100 {
		t.Errorf("%d units on this instance's record, want 100", n)
	}
	if d, err := r.Peek(context.Background(), "k", 1); err != nil || d.Allowed || d.Used != 256 {
		t.Errorf("%+v, %v", d, err)
	}
}

// A remembered denial takes no trip, is not counted in Redis, and applies only to its own limit.
func TestCountDeniedRemembered(t *testing.T) {
	clock := newVirtual()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), VirtualClock(clock.now))
	r := newRule(t, l, "hour", limit.PerHour(1), Use(limit.FixedWindow()), CountDenied())
	larger, err := r.WithLimit(limit.PerHour(10))
	if err != nil {
		t.Fatal(err)
	}
	for i, tier := range []limit.Tier{limit.TierRedis, limit.TierRedis, limit.TierLocal} {
		if d := mustAllow(t, r, "k", 1); d.Tier != tier || d.Allowed != (i == 0) {
			t.Errorf("%d: %+v", i, d)
		}
	}
	if d := mustAllow(t, larger, "k", 2); !d.Allowed || d.Used != 4 {
		t.Errorf("%+v", d)
	}
	// A denied Peek says nothing about smaller costs, because a Peek counts nothing.
	if d, err := larger.Peek(context.Background(), "k", 7); err != nil || d.Allowed || d.Remaining != 6 {
		t.Errorf("%+v, %v", d, err)
	}
	if d := mustAllow(t, larger, "k", 6); !d.Allowed || d.Used != 10 {
		t.Errorf("%+v", d)
	}
	// Neither is a Peek remembered when the units are just used up: the next request is counted.
	mustAllow(t, r, "full", 1)
	if d, err := r.Peek(context.Background(), "full", 1); err != nil || d.Allowed || d.Used != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	if d := mustAllow(t, r, "full", 1); d.Allowed || d.Used != 2 || d.Tier != limit.TierRedis {
		t.Errorf("%+v", d)
	}
	// A cost above the limit is no mistake: the request is denied and counted. Once nothing is left, smaller
	// costs are denied from memory, too.
	if d := mustAllow(t, r, "other", 5); d.Allowed || d.Used != 5 || d.Tier != limit.TierRedis {
		t.Errorf("%+v", d)
	}
	if d := mustAllow(t, r, "other", 1); d.Allowed || d.Tier != limit.TierLocal {
		t.Errorf("%+v", d)
	}
	ds, err := l.AllowEach(context.Background(), Request{Rule: r, Key: "other", Cost: 1}, Request{Rule: larger, Key: "other", Cost: 1})
	if err != nil || ds[0].Tier != limit.TierLocal || ds[1].Tier != limit.TierRedis || ds[1].Used != 6 {
		t.Errorf("%+v, %v", ds, err)
	}
}

// Without Redis, this instance's share enforces the rule's own limit.
func TestCountDeniedInOutage(t *testing.T) {
	server, clock := redistest.Start(t), newVirtual()
	l := newLimiterOn(t, server.Client(t), redistest.Prefix(), VirtualClock(clock.now))
	r := newRule(t, l, "hour", limit.PerHour(10), Use(limit.FixedWindow()), CountDenied(), DenialLife(0))
	mustAllow(t, r, "k", 4)
	loseRedis(server, l)
	ds, err := l.AllowEach(context.Background(), Request{Rule: r, Key: "k", Cost: 3}, Request{Rule: r, Key: "k", Cost: 7}, Request{Rule: r, Key: "k", Cost: 3}, Request{Rule: r, Key: "k", Cost: 0})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false, true, false} {
		if ds[i].Allowed != want || ds[i].Tier != limit.TierFallback {
			t.Errorf("%d: %+v", i, ds[i])
		}
	}
}

// Options and calls that cannot be combined with CountDenied are refused.
func TestCountDeniedRefused(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	for name, options := range map[string][]RuleOption{
		"log":   {CountDenied(), Use(limit.SlidingLog())},
		"auto":  {CountDenied()},
		"lease": {CountDenied(), Use(limit.FixedWindow()), Lease(1)},
		"hold":  {CountDenied(), Use(limit.FixedWindow()), HoldLife(time.Minute)},
		"given": {CountDenied(), Use(limit.FixedWindow()), Unsettled(GiveBack)},
	} {
		if _, err := l.Rule(name, limit.PerHour(100), options...); !errors.Is(err, limit.ErrInvalidOption) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := l.Rule("calendar", limit.PerCalendar(100, limit.CalendarDay, time.UTC), CountDenied()); !errors.Is(err, limit.ErrInvalidOption) {
		t.Errorf("calendar: %v", err)
	}
	r := newRule(t, l, "r", limit.PerHour(100), Use(limit.FixedWindow()), CountDenied())
	if _, err := l.AllowAll(context.Background(), Request{Rule: r, Key: "k", Cost: 1}); !errors.Is(err, limit.ErrInvalidRule) {
		t.Errorf("all or none: %v", err)
	}
	if n := r.WorstCase(); n != 200 {
		t.Errorf("worst case %d, want 200", n)
	}
}

// AllowUpTo counts all requested units, up to the limit, and grants those that fit.
func TestCountDeniedUpTo(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), RememberDenials(0), VirtualClock(newVirtual().now))
	r := newRule(t, l, "r", limit.PerDay(10), Use(limit.FixedWindow()), CountDenied())
	for _, tc := range []struct{ cost, granted, remaining, used int64 }{{6, 6, 4, 6}, {3, 3, 1, 9}, {3, 1, 0, 12}, {1, 0, 0, 13}, {100, 0, 0, 23}} {
		d, err := r.AllowUpTo(context.Background(), "k", tc.cost)
		if err != nil || d.Granted != tc.granted || d.Allowed != (tc.granted > 0) || d.Remaining != tc.remaining || d.Used != tc.used {
			t.Errorf("up to %d: %+v, %v; want %+v", tc.cost, d, err, tc)
		}
		if (d.RetryAfter > 0) == d.Allowed {
			t.Errorf("up to %d: %+v", tc.cost, d)
		}
	}
}

// A cost above the limit is counted and denied, so waiting for it would never end.
func TestNobodyWaitsForMoreThanTheLimitWithCountDenied(t *testing.T) {
	clock := newVirtual()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), VirtualClock(clock.now))
	r := newRule(t, l, "r", limit.PerHour(5), Use(limit.FixedWindow()), CountDenied())
	if d, err := r.Wait(t.Context(), "k", 6); !errors.Is(err, limit.ErrCostExceedsLimit) || d != (limit.Decision{}) {
		t.Errorf("%+v, %v", d, err)
	}
	if d := mustAllow(t, r, "k", 5); !d.Allowed {
		t.Errorf("%+v: the call that could not wait was charged", d)
	}
	if d := mustAllow(t, r, "k", 6); d.Allowed {
		t.Errorf("%+v", d)
	}
	if invalid := l.Stats().Rules[0].Errors.Invalid; invalid != 1 {
		t.Errorf("%d calls count as mistakes, want 1", invalid)
	}
}

// Law 2: an answer whose callers have left, so that none of its units count as granted to anybody, is no denial.
func TestLaw2CallersThatHaveLeftAreNotDenied(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	r := newRule(t, l, "r", limit.PerHour(1000), Use(limit.FixedWindow()), CountDenied())
	for i, c := range []struct {
		operation            int
		count, granted, used int64
		denied               bool
	}{
		{lua.Take, 1, 0, 5, false}, {lua.Take, 3, 5, 15, false}, {lua.TakeUpTo, 1, 0, 5, false},
		{lua.Take, 1, 0, 1005, true}, {lua.Take, 3, 5, 1005, true}, {lua.TakeUpTo, 1, 0, 1005, true},
	} {
		key := fmt.Sprint("k", i)
		q := r.ask(key, 5, c.operation)
		e := q.entry()
		e.Count = c.count
		reply := &remote.Reply{Status: remote.Allowed, Fitted: c.count, Granted: c.granted, Remaining: limit.MaxQuota - c.used, ResetAfter: time.Hour}
		if judged := replyUnder(1000, reply, e.Cost, e.Count, c.operation); judged.Granted > c.granted {
			t.Errorf("%d units are granted, of which %d are anybody's", judged.Granted, c.granted)
		}
		(*observer)(r).Answered(0, &e, reply, l.now())
		if d := mustAllow(t, r, key, 5); d.Allowed == c.denied {
			t.Errorf("%d of operation %d with %d units granted, and %d used: then %+v", c.count, c.operation, c.granted, c.used, d)
		}
	}
}
