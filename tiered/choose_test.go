package tiered

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/internal/simulate"
	"github.com/tierlimit/tierlimit/limit"
)

// A larger limit never grants less: whatever algorithm is chosen, raising a limit does not shrink the largest
// cost that fits.
func TestLawALargerLimitNeverGrantsLess(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	rapid.Check(t, func(t *rapid.T) {
		drawThresholds(t, l, 10_000_000)
		quota := rapid.OneOf(
			rapid.Int64Range(1, 50), rapid.Int64Range(1, 5_000_000), rapid.Int64Range(1, limit.MaxQuota),
			rapid.SampledFrom([]int64{l.config.logUpTo + 1, l.config.counterUpTo, l.config.counterUpTo + 1, 10 * l.config.counterUpTo, 10*l.config.counterUpTo + 1}).Filter(func(n int64) bool { return n > 0 }),
		)
		small, large := quota.Draw(t, "quota"), quota.Draw(t, "another quota")
		if small > large {
			small, large = large, small
		}
		window := time.Duration(rapid.Int64Range(1, limit.MaxWindow.Milliseconds()).Draw(t, "window")) * time.Millisecond
		options := []RuleOption{Use(rapid.SampledFrom(append(limit.Algorithms(), limit.Automatic(), limit.Automatic())).Draw(t, "algorithm"))}
		switch rapid.IntRange(0, 2).Draw(t, "lease") {
		case 1:
			options = append(options, Lease(rapid.IntRange(1, 50).Draw(t, "percent")))
		case 2:
			options = append(options, LeaseWithinLimit(rapid.IntRange(1, 50).Draw(t, "percent")))
		}
		burst := rapid.SampledFrom([]int64{0, 0, 1, small}).Draw(t, "burst")
		most := func(quota int64) int64 {
			r, err := l.PrepareRule("r", limit.Per(quota, window).WithBurst(burst), options...)
			if errors.Is(err, limit.ErrInvalidAlgorithm) || errors.Is(err, limit.ErrInvalidLimit) {
				t.Skip("no such limit:", err)
			} else if err != nil {
				t.Fatal(err)
			}
			if err := r.check(context.Background(), "k", r.capacity); err != nil {
				t.Fatalf("the largest cost of %v: %v", r.Limit(), err)
			}
			if err := r.check(context.Background(), "k", r.capacity+1); !errors.Is(err, limit.ErrCostExceedsLimit) {
				t.Fatalf("one more than the largest cost of %v: %v", r.Limit(), err)
			}
			return r.capacity
		}
		if a, b := most(small), most(large); a > b {
			t.Fatalf("%d per %v grants %d at once, %d per %v only %d", small, window, a, large, window, b)
		}
	})
}

// Law 1 holds for the automatic choice: an adversary who knows the algorithm gets exactly the rule's stated worst
// case through in a window, never more. The worst case is the limit itself up to the counter's threshold, less
// than twice the limit above it, and less than 10 % above limits of more than ten times the threshold.
func TestLaw1OfTheAutomaticChoice(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	rapid.Check(t, func(t *rapid.T) {
		drawThresholds(t, l, 40)
		quota := rapid.Int64Range(1, 600).Draw(t, "quota")
		r, err := l.PrepareRule("r", limit.Per(quota, time.Duration(rapid.Int64Range(1000, 100_000_000).Draw(t, "µs"))*time.Microsecond))
		if err != nil {
			t.Fatal(err)
		}
		m, err := model.New(r.Limit(), r.Algorithm())
		if err != nil {
			t.Fatal(err)
		}
		var stamps, costs []int64
		for _, at := range simulate.Adversary(r.Limit(), r.Algorithm(), 1_790_123_456_789_012) {
			if m.Decide(at, 1).Allowed {
				stamps, costs = append(stamps, at), append(costs, 1)
			}
		}
		if most := model.MaxInWindow(stamps, costs, r.Limit().Window().Microseconds()); most != r.WorstCase() {
			t.Fatalf("%v lets %d through in a window, and states %d", r.Plan(), most, r.WorstCase())
		}
		above := r.WorstCase() - quota
		if above >= quota || quota > 10*l.config.counterUpTo && 10*above >= quota || quota <= l.config.counterUpTo && above > 0 {
			t.Fatalf("%v states %d above a limit of %d", r.Plan(), above, quota)
		}
	})
}

// drawThresholds draws the thresholds of the automatic choice, and sets them.
func drawThresholds(t *rapid.T, l *Limiter, most int64) {
	l.config.logUpTo, l.config.counterUpTo = DefaultLogUpTo, DefaultCounterUpTo
	if most < DefaultCounterUpTo || rapid.Bool().Draw(t, "thresholds") {
		l.config.logUpTo = rapid.Int64Range(0, most).Draw(t, "log up to")
		l.config.counterUpTo = rapid.Int64Range(l.config.logUpTo, most).Draw(t, "counter up to")
	}
}

// After an upgrade to a larger limit, Redis grants no less than before. The error about a cost that cannot fit
// names the burst that the cost exceeds.
func TestAnUpgradeGrantsNoLess(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	r := newRule(t, l, "r", limit.PerMinute(100_000))
	if d := mustAllow(t, r, "before", 50_000); !d.Allowed {
		t.Errorf("%+v", d)
	}
	r, err := l.ChangeRule("r", limit.PerMinute(200_000))
	if err != nil {
		t.Fatal(err)
	}
	if d := mustAllow(t, r, "after", 100_000); !d.Allowed || d.Algorithm != limit.GCRA() {
		t.Errorf("%+v", d)
	}
	_, err = r.AllowN(context.Background(), "after", 100_001)
	if !errors.Is(err, limit.ErrCostExceedsLimit) || !strings.Contains(err.Error(), "100000 at once") || !strings.Contains(err.Error(), "burst=100000") {
		t.Errorf("%v", err)
	}
	if p := fmt.Sprint(r.Plan()); !strings.Contains(p, "gcra:burst=100000") {
		t.Errorf("%s", p)
	}
	if other, err := r.WithOutage(Deny); err != nil || other.Plan() != r.Plan() {
		t.Errorf("with another outage policy: %v, %v", other.Plan(), err)
	}
}

// For a limit with a burst, GCRA is chosen whatever the limit's size, because no other algorithm has a burst.
func TestABurstChoosesGCRA(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	for _, quota := range []int64{100, 5_000, 500_000} {
		r := newRule(t, l, fmt.Sprint("r", quota), limit.Per(quota, 30*24*time.Hour).WithBurst(7))
		if p := r.Plan(); p.Candidate.String() != "gcra:burst=7" || r.WorstCase() != quota+6 || !strings.Contains(p.Why, "burst") {
			t.Errorf("%v", p)
		}
		mustAllow(t, r, "k", 7)
		if d := mustAllow(t, r, "k", 7); d.Allowed {
			t.Errorf("%+v", d)
		}
	}
}

// A rule that names GCRA without a burst grants the whole limit at once, as other GCRA limiters do, and then
// units at an even rate.
func TestGCRAThatIsNamedHasTheLimitAsBurst(t *testing.T) {
	clock := newVirtual()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), VirtualClock(clock.now), RememberDenials(0))
	r := newRule(t, l, "r", limit.PerMinute(10), Use(limit.GCRA()))
	if r.WorstCase() != 19 {
		t.Errorf("worst case %d", r.WorstCase())
	}
	for i := range 11 {
		if d := mustAllow(t, r, "k", 1); d.Allowed != (i < 10) {
			t.Errorf("request %d: %+v", i+1, d)
		}
	}
	clock.advance(6 * time.Second)
	for i := range 2 {
		if d := mustAllow(t, r, "k", 1); d.Allowed != (i == 0) {
			t.Errorf("6 s later, request %d: %+v", i+1, d)
		}
	}
}
