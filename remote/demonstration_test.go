package remote

import (
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// configurations returns all algorithms, with those settings that differ in kind.
func configurations() []limit.Algorithm {
	return []limit.Algorithm{
		limit.SlidingLog(),
		limit.SlidingLogZSet(),
		limit.SlidingCounter(1, limit.Estimate),
		limit.SlidingCounter(4, limit.Estimate),
		limit.SlidingCounter(60, limit.Estimate),
		limit.SlidingCounter(1, limit.Strict),
		limit.SlidingCounter(limit.DefaultBuckets, limit.Strict),
		limit.SlidingCounter(limit.MaxBuckets, limit.Strict),
		limit.GCRA(),
		limit.FixedWindow(),
	}
}

// Law 1, demonstrated around a window's boundary: with a limit of 50 per 10 s, callers ask for more than a full
// burst one second before the boundary, and again one second after it.
func TestLaw1BurstsAroundAWindowBoundary(t *testing.T) {
	const second = 1_000_000
	script := NewScript(redistest.Shared(t).Client(t))
	for _, l := range []limit.Limit{limit.Per(50, 10*time.Second), limit.Per(50, 10*time.Second).WithBurst(50)} {
		for _, a := range configurations() {
			t.Run(a.String()+" "+l.String(), func(t *testing.T) {
				rule := newRule(t, l, a)
				key := redistest.Prefix() + "burst"
				boundary := int64(epoch) / (10 * second) * (10 * second)
				var stamps, costs []int64
				for _, at := range []int64{boundary - second, boundary + second} {
					for range 80 {
						if decide(t, script, key, rule, at, 1).Status == Allowed {
							stamps, costs = append(stamps, at), append(costs, 1)
						}
					}
				}
				worst := model.MaxInWindow(stamps, costs, 10*second)
				t.Logf("%d allowed in two seconds; stated bound %d", worst, a.WorstCase(l))
				if worst > a.WorstCase(l) {
					t.Errorf("%d allowed, above the stated bound %d", worst, a.WorstCase(l))
				}
				switch {
				case a == limit.FixedWindow():
					if worst != 100 {
						t.Errorf("fixed window allowed %d, want 100", worst)
					}
				case a.Same(limit.SlidingLog()), a.Rounding() == limit.Strict:
					if worst != 50 {
						t.Errorf("%d allowed, want 50", worst)
					}
				}
			})
		}
	}
}

// This is the two-counter example found in textbooks: limit 5 per 60 s, 8 units in the previous window, 45 s into
// the current one. With 3 units in the current window the estimate is 3 + 8*(1-45/60) = 5, and the next request is
// denied. With 2 units the estimate is 4, and the request is allowed.
func TestTwoCounterWorkedExample(t *testing.T) {
	const second = 1_000_000
	script := NewScript(redistest.Shared(t).Client(t))
	twoCounters := limit.SlidingCounter(1, limit.Estimate)
	rule := newRule(t, limit.PerMinute(5), twoCounters)
	// A larger limit on the same key puts the counts where the example has them.
	filler := newRule(t, limit.PerMinute(100), twoCounters)
	boundary := int64(epoch) / (60 * second) * (60 * second)
	for current, want := range map[int64]Status{3: Denied, 2: Allowed} {
		key := redistest.Prefix() + "example"
		decide(t, script, key, filler, boundary-30*second, 8)
		decide(t, script, key, filler, boundary+10*second, current)
		got := decide(t, script, key, rule, boundary+45*second, 1)
		if got.Status != want || got.Remaining != 0 {
			t.Errorf("with %d units in the current window: %+v, want status %d and nothing left", current, got, want)
		}
		// The request is denied at an estimate of 5, which must fall to 4: 8*(1-f) = 1, f = 52.5 s.
		if want == Denied && got.RetryAfter != 7500*time.Millisecond {
			t.Errorf("retry after %v, want 7.5s", got.RetryAfter)
		}
	}
}
