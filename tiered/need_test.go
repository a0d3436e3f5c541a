package tiered

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/plan"
)

// A rule with a Need uses an algorithm that meets it, and its plan says why.
func TestRuleOfANeed(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	for name, tc := range map[string]struct {
		option RuleOption
		limit  limit.Limit
		want   string
		why    string
	}{
		"nothing":   {func(*ruleConfig) error { return nil }, limit.PerMinute(5000), "sliding-counter:k=16,strict", "above 2000 and up to 100000"},
		"small":     {func(*ruleConfig) error { return nil }, limit.PerMinute(50), "sliding-log", "up to 2000"},
		"large":     {func(*ruleConfig) error { return nil }, limit.PerMinute(500_000), "gcra:burst=100000", "above 100000"},
		"huge":      {func(*ruleConfig) error { return nil }, limit.PerMinute(5_000_000), "gcra:burst=500000", "above 100000"},
		"calendar":  {func(*ruleConfig) error { return nil }, limit.PerCalendar(50, limit.CalendarDay, time.UTC), "fixed-window", "calendar"},
		"named":     {Use(limit.SlidingCounter(4, limit.Estimate)), limit.PerMinute(50), "sliding-counter:k=4,estimate", "names"},
		"exact":     {Need(plan.Need{Above: plan.AtMost(0), Late: plan.AtMost(0)}), limit.PerMinute(5000), "sliding-log", "no capacity returned late"},
		"late":      {Need(plan.Need{Above: plan.AtMost(0), Late: plan.AtMost(0.02)}), limit.PerMinute(5000), "sliding-counter:k=60,strict", "2 % of the window late"},
		"spaced":    {Need(plan.Need{Above: plan.AtMost(0.1), Late: plan.AtMost(1)}), limit.PerMinute(5000), "gcra:burst=500", "10 % above"},
		"of memory": {Need(plan.Need{Bytes: 250}), limit.PerMinute(5000), "sliding-counter:k=24,strict", "250 bytes a key"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRule(t, l, strings.ReplaceAll(name, " ", "-"), tc.limit, tc.option)
			p := r.Plan()
			if p.Candidate.String() != tc.want || !strings.Contains(p.Why, tc.why) || !strings.HasSuffix(p.Why, ".") {
				t.Errorf("%v, want %s because %q", p, tc.want, tc.why)
			}
			if p.Algorithm != r.Algorithm() || p.WorstCase() != r.WorstCase() || p.BytesAtRest < 100 || p.BytesFull < p.BytesAtRest {
				t.Errorf("%+v does not fit the rule: %v, %d", p, r.Algorithm(), r.WorstCase())
			}
			if d := mustAllow(t, r, "k", 1); !d.Allowed || d.Algorithm != p.Algorithm {
				t.Errorf("%+v", d)
			}
		})
	}
}

// If the chosen algorithm needs a burst, the rule's limit includes it. Asking for the same rule twice returns the
// same rule. WithLimit chooses the algorithm again.
func TestNeedAndLimits(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	need := Need(plan.Need{Above: plan.AtMost(0.5), Late: plan.AtMost(0.5)})
	r := newRule(t, l, "r", limit.PerMinute(5000), need)
	if r.Limit() != limit.PerMinute(5000).WithBurst(2500) {
		t.Errorf("limit %v", r.Limit())
	}
	if again := newRule(t, l, "r", limit.PerMinute(5000), need); again != r {
		t.Error("the same settings made another rule")
	}
	other, err := r.WithLimit(limit.PerMinute(2))
	if err != nil || other.Plan().WorstCase() > 3 {
		t.Errorf("%v, %v", other.Plan(), err)
	}
	for _, name := range []int{1, 1000} {
		named := newRule(t, l, fmt.Sprint("of", name), limit.PerMinute(10), Need(plan.Need{Bytes: 2000, NameBytes: name}))
		if bytes := named.Plan().BytesAtRest; bytes > 1000 != (name == 1000) {
			t.Errorf("%d bytes with names of %d", bytes, name)
		}
	}
}

func TestNeedMistakes(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	for _, tc := range []struct {
		options []RuleOption
		want    error
	}{
		{[]RuleOption{Need(plan.Need{})}, plan.ErrInvalidNeed},
		{[]RuleOption{Need(plan.Need{Bytes: 50})}, plan.ErrUnmet},
		{[]RuleOption{Need(plan.Need{Bytes: 500}), Use(limit.GCRA())}, limit.ErrInvalidOption},
	} {
		if _, err := l.Rule("r", limit.PerMinute(10), tc.options...); !errors.Is(err, tc.want) {
			t.Errorf("%v, want %v", err, tc.want)
		}
	}
}
