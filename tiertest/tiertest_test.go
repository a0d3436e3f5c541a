package tiertest_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/embedded"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
	"github.com/tierlimit/tierlimit/tiertest"
)

// Time passes only when the test moves the clock. That holds for all algorithms and for remembered
// denials.
func TestTheClockIsTheTests(t *testing.T) {
	limiter, clock := tiertest.New(t)
	for _, algorithm := range []limit.Algorithm{limit.SlidingLog(), limit.SlidingCounter(4, limit.Strict), limit.GCRA(), limit.FixedWindow()} {
		rule := limiter.MustRule(algorithm.Name(), limit.PerHour(2), tiered.Use(algorithm))
		for range 3 { // one iteration per window
			for i, want := range []bool{true, true, false, false} {
				d, err := rule.Allow(t.Context(), "k")
				if err != nil || d.Allowed != want {
					t.Fatalf("%v, request %d: %+v, %v", algorithm, i, d, err)
				}
			}
			clock.Advance(2 * time.Hour)
		}
	}
}

// A clock that is moved back locks a key for no longer than its window, whether or not the key was
// denied before.
func TestLaw5TheClockIsMovedBack(t *testing.T) {
	limiter, clock := tiertest.New(t)
	rule := limiter.MustRule("r", limit.PerMinute(2))
	allow := func(want bool) {
		t.Helper()
		d, err := rule.Allow(t.Context(), "k")
		if err != nil || d.Allowed != want || d.RetryAfter > time.Minute {
			t.Fatalf("%+v, %v; want allowed %v", d, err, want)
		}
	}
	allow(true)
	allow(true)
	allow(false)
	clock.Advance(-time.Hour)
	allow(false)
	clock.Advance(time.Minute)
	allow(true)
}

// Limiters share nothing, even if they have the same prefix; and options replace the defaults.
func TestLimitersShareNothing(t *testing.T) {
	for range 2 {
		limiter, _ := tiertest.New(t, tiered.Prefix("own"))
		if d, err := limiter.MustRule("r", limit.PerHour(1)).Allow(t.Context(), "k"); err != nil || !d.Allowed {
			t.Errorf("%+v, %v", d, err)
		}
	}
}

// search is code under test. It takes an Allower and not a limiter.
func search(ctx context.Context, allow limit.Allower, user string) (string, error) {
	d, err := allow.Allow(ctx, user)
	switch {
	case err != nil:
		return "", err
	case !d.Allowed:
		return "come back in " + d.RetryAfter.String(), nil
	}
	return "results", nil
}

func TestARuleIsAnAllower(t *testing.T) {
	limiter, clock := tiertest.New(t)
	rule := limiter.MustRule("search", limit.PerMinute(1))
	says := func(want string) {
		t.Helper()
		if got, err := search(t.Context(), rule, "alice"); err != nil || got != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	says("results")
	clock.Advance(20 * time.Second)
	says("come back in 40s")
	clock.Advance(40 * time.Second)
	says("results")
}

func TestAFunctionIsAnAllower(t *testing.T) {
	broken := errors.New("broken")
	for want, decide := range map[string]limit.AllowerFunc{
		"results": func(context.Context, string, int64) (limit.Decision, error) {
			return limit.Decision{Allowed: true}, nil
		},
		"come back in 3s": func(_ context.Context, key string, cost int64) (limit.Decision, error) {
			if key != "alice" || cost != 1 {
				t.Errorf("asked for %d of %q", cost, key)
			}
			return limit.Decision{RetryAfter: 3 * time.Second}, nil
		},
		"": func(context.Context, string, int64) (limit.Decision, error) { return limit.Decision{}, broken },
	} {
		got, err := search(t.Context(), decide, "alice")
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	many := limit.AllowerFunc(func(_ context.Context, _ string, cost int64) (limit.Decision, error) {
		return limit.Decision{Granted: cost}, nil
	})
	if d, err := many.AllowN(t.Context(), "k", 7); err != nil || d.Granted != 7 {
		t.Errorf("%+v, %v", d, err)
	}
}

// A clock may begin at the Unix epoch, as clocks of simulations do.
func TestClockFromTheEpoch(t *testing.T) {
	clock := tiertest.NewClock(time.Unix(0, 0))
	limiter, _ := tiertest.New(t, tiered.VirtualClock(clock.Now))
	for _, a := range limit.Algorithms() {
		r := limiter.MustRule(a.Name(), limit.PerMinute(2), tiered.Use(a))
		for range 2 {
			decide := func(wants bool) {
				t.Helper()
				if d, err := r.Allow(t.Context(), "k"); err != nil || d.Allowed != wants || d.Degraded() {
					t.Errorf("%v at %v: %+v, %v", a, clock.Now().UTC(), d, err)
				}
			}
			decide(true)
			decide(true)
			decide(false)
			clock.Advance(2 * time.Minute)
		}
		clock.Advance(-4 * time.Minute)
	}
}

// A clock shows what it was given, and what it was moved to, also where a count of nanoseconds since 1970 would
// wrap around. The year 2562 would then look like 1977, which a limiter accepts.
func TestTheClockDoesNotWrapAround(t *testing.T) {
	for _, year := range []int{1, 1677, 1970, 2263, 2562, 9999} {
		at := time.Date(year, time.June, 1, 12, 0, 0, 1, time.UTC)
		clock := tiertest.NewClock(at)
		if now := clock.Now(); !now.Equal(at) {
			t.Errorf("%v became %v", at, now)
		}
		for range 3 {
			clock.Advance(math.MaxInt64)
			at = at.Add(math.MaxInt64)
		}
		if now := clock.Now(); !now.Equal(at) {
			t.Errorf("moved forward to %v, it shows %v", at, now)
		}
		clock.Advance(-time.Nanosecond)
		if now := clock.Now(); !now.Equal(at.Add(-1)) {
			t.Errorf("moved back to %v, it shows %v", at.Add(-1), now)
		}
	}
	beyond := tiertest.NewClock(time.Date(2562, time.June, 1, 0, 0, 0, 0, time.UTC))
	if limiter, err := embedded.Open(tiered.VirtualClock(beyond.Now)); !errors.Is(err, limit.ErrInvalidOption) {
		t.Errorf("a limiter in the year 2562: %v", err)
		_ = limiter.Close()
	}
}
