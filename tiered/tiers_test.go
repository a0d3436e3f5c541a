package tiered

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// virtual is a clock that tests move.
type virtual struct{ micros atomic.Int64 }

func newVirtual() *virtual {
	v := &virtual{}
	v.micros.Store(1_790_000_000_000_000)
	return v
}

func (v *virtual) now() time.Time          { return time.UnixMicro(v.micros.Load()) }
func (v *virtual) advance(d time.Duration) { v.micros.Add(d.Microseconds()) }

func mustAllow(t testing.TB, r *Rule, key string, cost int64) limit.Decision {
	t.Helper()
	d, err := r.AllowN(context.Background(), key, cost)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Law 2: a denial is remembered, and repeated without a trip for no longer than Redis said. It does not apply to
// smaller costs, other keys or other limits.
func TestLaw2DenialsAreRemembered(t *testing.T) {
	clock := newVirtual()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), VirtualClock(clock.now))
	r := newRule(t, l, "r", limit.Per(10, 600*time.Millisecond))

	if d := mustAllow(t, r, "k", 8); !d.Allowed || d.Tier != limit.TierRedis || d.Remaining != 2 {
		t.Fatalf("%+v", d)
	}
	denied := mustAllow(t, r, "k", 5)
	if denied.Allowed || denied.Tier != limit.TierRedis || denied.RetryAfter != 600*time.Millisecond {
		t.Fatalf("%+v", denied)
	}
	clock.advance(100 * time.Millisecond)
	if d := mustAllow(t, r, "k", 6); d.Allowed || d.Tier != limit.TierLocal || d.RetryAfter != 500*time.Millisecond || d.Remaining != 2 {
		t.Errorf("a larger cost: %+v", d)
	}
	if d := mustAllow(t, r, "k", 2); !d.Allowed || d.Tier != limit.TierRedis {
		t.Errorf("a smaller cost: %+v", d)
	}
	if d := mustAllow(t, r, "k", 1); d.Allowed || d.Tier != limit.TierRedis {
		t.Errorf("with nothing left: %+v", d)
	}
	if d := mustAllow(t, r, "k", 1); d.Allowed || d.Tier != limit.TierLocal || d.Remaining != 0 {
		t.Errorf("nothing left, again: %+v", d)
	}
	if d := mustAllow(t, r, "other", 10); !d.Allowed {
		t.Errorf("another key: %+v", d)
	}
	larger, err := r.WithLimit(limit.Per(20, 600*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	if d := mustAllow(t, larger, "k", 10); !d.Allowed || d.Limit != 20 || d.Remaining != 0 {
		t.Errorf("the same key on a larger plan: %+v", d)
	}
	clock.advance(499 * time.Millisecond)
	if d := mustAllow(t, r, "k", 1); d.Allowed {
		t.Errorf("a millisecond early: %+v", d)
	}
	clock.advance(time.Millisecond)
	if d := mustAllow(t, r, "other", 1); d.Allowed {
		t.Errorf("the other key, charged later: %+v", d)
	}
	clock.advance(100 * time.Millisecond)
	if d := mustAllow(t, r, "other", 10); !d.Allowed {
		t.Errorf("a window later: %+v", d)
	}
}

// Law 2: instances that share a Redis and remember denials decide each request as if it had gone to Redis. Redis
// would have made each denial from memory at that instant, too, whatever the other instances have done, and the
// denial's wait is no longer than Redis's.
func TestLaw2RememberingChangesNoDecision(t *testing.T) {
	t.Parallel()
	server, prefix := redistest.Shared(t), redistest.Prefix()
	clock := newVirtual()
	var instances []*Limiter
	for range 3 {
		instances = append(instances, newLimiterOn(t, server.Client(t), prefix, VirtualClock(clock.now)))
	}
	rules := 0
	for _, a := range append(limit.Algorithms(), limit.SlidingLogZSet(), limit.SlidingCounter(3, limit.Estimate)) {
		cases, local := 0, 0
		rapid.Check(t, func(t *rapid.T) {
			cases++
			rules++
			local += rememberingChangesNothing(t, clock, instances, fmt.Sprint("r", rules), a)
		})
		// About a thousand decisions are local. There are at least 100 cases unless RAPID_CHECKS sets fewer.
		if local < 200 && cases >= 100 {
			t.Errorf("%v: only %d decisions were local: the test shows little", a, local)
		}
	}
}

// rememberingChangesNothing compares one history with the model's, and returns how many decisions were made from
// memory.
func rememberingChangesNothing(t *rapid.T, clock *virtual, instances []*Limiter, name string, a limit.Algorithm) (local int) {
	quota := rapid.Int64Range(1, 12).Draw(t, "quota")
	window := rapid.Int64Range(1, 4000).Draw(t, "window in ms")
	lim := limit.Per(quota, time.Duration(window)*time.Millisecond).WithBurst(rapid.Int64Range(1, quota).Draw(t, "burst"))
	redis, err := model.New(lim, a)
	if err != nil {
		t.Fatal(err)
	}
	rules := make([]*Rule, len(instances))
	for i, l := range instances {
		if rules[i], err = l.Rule(name, lim, Use(a)); err != nil {
			t.Fatal(err)
		}
	}
	for range rapid.IntRange(1, 60).Draw(t, "requests") {
		clock.advance(time.Duration(rapid.OneOf(
			rapid.Just(int64(0)),
			rapid.Int64Range(0, 1000*window/quota),
			rapid.Int64Range(0, 1000*window),
		).Draw(t, "gap")) * time.Microsecond)
		r := rapid.SampledFrom(rules).Draw(t, "instance")
		cost := rapid.Int64Range(1, a.Capacity(lim)).Draw(t, "cost")
		var d limit.Decision
		var want model.Outcome
		now := clock.now().UnixMicro()
		switch rapid.IntRange(0, 4).Draw(t, "operation") {
		case 0:
			d, err = r.AllowUpTo(context.Background(), "k", cost)
			want = redis.TakeUpTo(now, cost)
		case 1:
			d, err = r.Peek(context.Background(), "k", cost)
			want = redis.Peek(now, cost)
		default:
			d, err = r.AllowN(context.Background(), "k", cost)
			want = redis.Decide(now, cost)
		}
		wait := d.RetryAfter.Microseconds()
		if err != nil || d.Allowed != want.Allowed || d.Granted != want.Granted || wait > want.RetryAfter {
			t.Fatalf("%v under %v, cost %d: %+v, %v; Redis by itself: %+v", lim, a, cost, d, err, want)
		}
		if d.Tier == limit.TierLocal {
			local++
		}
	}
	return local
}

func TestAlgorithmIsChosenByTheLimitsSize(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	l := newLimiterOn(t, client, redistest.Prefix())
	tuned := newLimiterOn(t, client, redistest.Prefix(), Thresholds(5, 50))
	counter := limit.SlidingCounter(limit.DefaultBuckets, limit.Strict)
	for i, tc := range []struct {
		limiter *Limiter
		quota   int64
		want    limit.Algorithm
	}{
		{l, 1, limit.SlidingLog()},
		{l, 2000, limit.SlidingLog()},
		{l, 2001, counter},
		{l, 100_000, counter},
		{l, 100_001, limit.GCRA()},
		{tuned, 5, limit.SlidingLog()},
		{tuned, 6, counter},
		{tuned, 51, limit.GCRA()},
	} {
		r := newRule(t, tc.limiter, fmt.Sprint("r", i), limit.PerMinute(tc.quota))
		if r.Algorithm() != tc.want {
			t.Errorf("limit %d chose %v, want %v", tc.quota, r.Algorithm(), tc.want)
		}
		if d := mustAllow(t, r, "k", 1); !d.Allowed || d.Algorithm != tc.want {
			t.Errorf("limit %d: %+v", tc.quota, d)
		}
	}
	monthly := newRule(t, l, "monthly", limit.PerCalendar(100, limit.CalendarMonth, time.UTC))
	if d := mustAllow(t, monthly, "k", 100); !d.Allowed || monthly.Algorithm() != limit.FixedWindow() || monthly.WorstCase() != 300 {
		t.Errorf("%v: %+v", monthly.Algorithm(), d)
	}
	now := time.Now().UTC()
	next := time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, time.UTC)
	if d := mustAllow(t, monthly, "k", 1); d.Allowed || now.Add(d.RetryAfter).Sub(next).Abs() > 10*time.Second {
		t.Errorf("%+v, want retry after about %v", d, next.Sub(now))
	}
	if _, err := l.Rule("logged-month", limit.PerCalendar(100, limit.CalendarMonth, time.UTC), Use(limit.SlidingLog())); !errors.Is(err, limit.ErrInvalidAlgorithm) {
		t.Errorf("a log of calendar months: %v", err)
	}
	named := newRule(t, l, "named", limit.PerMinute(5), Use(limit.GCRA()))
	if a := named.Algorithm(); a != limit.GCRA() || named.WorstCase() != 9 {
		t.Errorf("%v, worst case %d", a, named.WorstCase())
	}
	if plan, err := newRule(t, l, "auto", limit.PerMinute(5)).WithLimit(limit.PerMinute(1_000_000)); err != nil || plan.Algorithm() != limit.GCRA() {
		t.Errorf("a larger plan chose %v, %v", plan.Algorithm(), err)
	}
}

func errorOf(_ limit.Decision, err error) error { return err }

// Law 12: Close leaves the fleet, and leaves no goroutine behind.
func TestLaw12CloseLeavesNothingBehind(t *testing.T) {
	server, prefix := redistest.Shared(t), redistest.Prefix()
	stays := newLimiterOn(t, server.Client(t), prefix)
	client := server.Client(t)
	before := runtime.NumGoroutine()
	l := redistest.Reached(t, client, func() (*Limiter, error) { return New(client, Prefix(prefix), Deadline(5*time.Second)) })
	r := newRule(t, l, "r", limit.PerMinute(1))
	for range 10 {
		mustAllow(t, r, "k", 1)
	}
	redistest.Eventually(t, "two instances", func() bool { return stays.FleetSize() == 2 })
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if _, err := r.Allow(context.Background(), "k"); !errors.Is(err, limit.ErrClosed) {
		t.Errorf("Allow after Close: %v", err)
	}
	if _, err := l.Rule("late", limit.PerMinute(1)); !errors.Is(err, limit.ErrClosed) {
		t.Errorf("Rule after Close: %v", err)
	}
	if _, err := r.WithLimit(limit.PerMinute(2)); !errors.Is(err, limit.ErrClosed) {
		t.Errorf("WithLimit after Close: %v", err)
	}
	if _, err := r.WithOutage(Allow); !errors.Is(err, limit.ErrClosed) {
		t.Errorf("WithOutage after Close: %v", err)
	}
	// Close removes the instance at once, before its heartbeat has expired.
	if n, err := client.ZCard(context.Background(), prefix+":{%fleet}").Result(); n != 1 || err != nil {
		t.Errorf("%d instances after Close, %v", n, err)
	}
	redistest.Eventually(t, "one instance left", func() bool { return stays.FleetSize() == 1 })
	redistest.Eventually(t, "no goroutine left", func() bool { return runtime.NumGoroutine() <= before })
}

func TestOpenOwnsItsClient(t *testing.T) {
	server := redistest.Shared(t)
	l, err := Open(&redis.UniversalOptions{Addrs: []string{server.Addr()}}, Prefix("open"), Deadline(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if d := mustAllow(t, newRule(t, l, "r", limit.PerMinute(5)), redistest.Prefix(), 1); !d.Allowed {
		t.Errorf("%+v", d)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.client.Ping(context.Background()).Err(); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("the client was not closed: %v", err)
	}
	if _, err := Open(nil); !errors.Is(err, limit.ErrInvalidOption) {
		t.Errorf("Open(nil): %v", err)
	}
	if _, err := Open(&redis.UniversalOptions{Addrs: []string{server.Addr()}}, Deadline(-1)); !errors.Is(err, limit.ErrInvalidOption) {
		t.Errorf("Open with a bad option: %v", err)
	}
}
