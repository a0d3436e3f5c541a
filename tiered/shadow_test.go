package tiered

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/internal/textbook"
	"github.com/tierlimit/tierlimit/limit"
)

// compared returns the number of comparisons so far, including those that were left out.
func (s *shadow) compared() int {
	n := uint64(0)
	for _, c := range []*atomic.Uint64{&s.agreed, &s.wronglyAllowed, &s.wronglyDenied, &s.full, &s.failed} {
		n += c.Load()
	}
	return int(n)
}

// The error rate of a shadow equals the one that a comparison with an exact log of the same requests gives.
func TestShadowCountsWhatTheExactLogSays(t *testing.T) {
	clock := newVirtual()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), VirtualClock(clock.now))
	r := newRule(t, l, "r", limit.Per(5, time.Second), Use(limit.FixedWindow()), Shadow(1))
	exact := textbook.New(5, time.Second)
	var agreed, wronglyAllowed, wronglyDenied uint64
	for i := range 300 {
		clock.advance(time.Duration(i*i%271) * time.Millisecond)
		allowed, right := mustAllow(t, r, "k", 1).Allowed, exact.Allow("k", clock.micros.Load())
		switch {
		case allowed == right:
			agreed++
		case allowed:
			wronglyAllowed++
		default:
			wronglyDenied++
		}
		redistest.Eventually(t, "the comparison is made", func() bool { return r.shadow.compared() == i+1 })
	}
	s := r.shadow
	if a, w, d := s.agreed.Load(), s.wronglyAllowed.Load(), s.wronglyDenied.Load(); a != agreed || w != wronglyAllowed || d != wronglyDenied {
		t.Errorf("%v agreed, %v wrongly allowed, %v wrongly denied; should be %v, %v, %v", a, w, d, agreed, wronglyAllowed, wronglyDenied)
	}
	if wronglyAllowed == 0 || wronglyDenied == 0 {
		t.Errorf("%v wrongly allowed, %v wrongly denied: this shows nothing", wronglyAllowed, wronglyDenied)
	}
}

// The sample has the requested size. It is the same in every process, and differs between rules.
func TestShadowSample(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	var samples []map[string]bool
	for _, name := range []string{"r", "r", "other"} {
		l := newLimiterOn(t, client, redistest.Prefix())
		r := newRule(t, l, name, limit.PerHour(5), Use(limit.GCRA()), Shadow(0.1))
		sample := make(map[string]bool)
		for i := range 10_000 {
			if key := fmt.Sprint(i); r.shadow.sampled(key) {
				sample[key] = true
			}
		}
		if len(sample) < 850 || len(sample) > 1150 {
			t.Errorf("%d keys of 10,000 in the sample", len(sample))
		}
		samples = append(samples, sample)
	}
	shared := func(a, b map[string]bool) (n int) {
		for key := range a {
			if b[key] {
				n++
			}
		}
		return n
	}
	if n := shared(samples[0], samples[1]); n != len(samples[0]) || n != len(samples[1]) {
		t.Errorf("%d and %d keys sampled by the same rule twice, %d of them the same", len(samples[0]), len(samples[1]), n)
	}
	if n := shared(samples[0], samples[2]); n > 300 {
		t.Errorf("two rules share %d keys of their samples", n)
	}
}

// holdLogs is a hook that delays commands to the exact log until released is closed.
type holdLogs struct{ released chan struct{} }

func (h holdLogs) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h holdLogs) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h holdLogs) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		for _, arg := range cmd.Args() {
			if key, ok := arg.(string); ok && strings.Contains(key, "~log") {
				<-h.released
			}
		}
		return next(ctx, cmd)
	}
}

// Decisions do not wait for the comparison, however slow it is. If the comparison cannot keep up, it leaves
// requests out, and counts them.
func TestShadowNeverHoldsDecisionsUp(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	hold := holdLogs{make(chan struct{})}
	client.AddHook(hold)
	l := newLimiterOn(t, client, redistest.Prefix())
	r := newRule(t, l, "r", limit.PerHour(100_000), Use(limit.GCRA()), Shadow(1))
	const callers, each = 8, 200
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for i := range each {
				if d := mustAllow(t, r, fmt.Sprint(i), 1); !d.Allowed || d.Tier != limit.TierRedis {
					t.Errorf("%+v", d)
				}
			}
		})
	}
	wg.Wait() // would never return if decisions waited for the comparison
	if full := r.shadow.full.Load(); full < callers*each-shadowQueue-shadowBatch {
		t.Errorf("%v comparisons left out", full)
	}
	close(hold.released)
	redistest.Eventually(t, "the others are made", func() bool { return r.shadow.compared() == callers*each })
}

// Errors of the comparison are counted, and have no other effect.
func TestShadowErrors(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	l := newLimiterOn(t, client, redistest.Prefix())
	r := newRule(t, l, "r", limit.PerHour(5), Use(limit.FixedWindow()), Shadow(1))
	if err := client.RPush(context.Background(), l.keys.Key("r~log", "k"), "not ours").Err(); err != nil {
		t.Fatal(err)
	}
	if d := mustAllow(t, r, "k", 1); !d.Allowed || d.Tier != limit.TierRedis {
		t.Errorf("%+v", d)
	}
	redistest.Eventually(t, "the error is counted", func() bool { return r.shadow.failed.Load() == 1 })
	if l.Degraded() {
		t.Error("the breaker is open")
	}
}

// Law 12: the shadow ends with the limiter, and its counts are in Stats.
func TestLaw12ShadowEndsWithTheLimiter(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	if err := client.Ping(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	l := redistest.Reached(t, client, func() (*Limiter, error) { return New(client, Prefix(redistest.Prefix()), Deadline(5*time.Second)) })
	r := newRule(t, l, "r", limit.PerHour(5), Use(limit.GCRA()), Shadow(1))
	mustAllow(t, r, "k", 1)
	redistest.Eventually(t, "the comparison is made", func() bool { return r.shadow.compared() == 1 })
	if got := ruleStats(l, "r").Shadow; got == nil || *got != (ShadowStats{Agreed: 1}) {
		t.Errorf("counted %+v", got)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "no goroutine left", func() bool { return runtime.NumGoroutine() <= before })
}

func TestShadowMistakes(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	for _, part := range []float64{0, -0.1, 1.1, math.NaN()} {
		if _, err := l.Rule("r", limit.PerHour(5), Shadow(part)); !errors.Is(err, limit.ErrInvalidOption) {
			t.Errorf("%v: %v", part, err)
		}
	}
	if _, err := l.Rule("r", limit.PerCalendar(5, limit.CalendarDay, time.UTC), Shadow(0.1)); !errors.Is(err, limit.ErrInvalidAlgorithm) {
		t.Errorf("there is no log of calendar windows: %v", err)
	}
	if r := newRule(t, l, "log", limit.PerHour(5), Shadow(1)); r.shadow != nil {
		t.Error("a log is compared with itself")
	}
	mustAllow(t, newRule(t, l, "none", limit.PerHour(5), Use(limit.GCRA())), "k", 1)
}
