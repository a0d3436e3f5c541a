package tiered

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Callers that wait already do not delay those that use the rule that has taken the place of theirs, even if the two
// rules have the same limit.
func TestWaitersOfAnEarlierRuleDelayNobody(t *testing.T) {
	t.Parallel()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	hourly := limit.PerHour(10).WithBurst(10)
	for name, c := range map[string]struct {
		before, after []RuleOption
		most          time.Duration // the longest wait for a unit under the new rule
	}{
		"algorithm": {[]RuleOption{Use(limit.SlidingLog())}, []RuleOption{Use(limit.GCRA())}, 6 * time.Minute},
		"leases":    {[]RuleOption{Use(limit.SlidingLog()), LeaseWithinLimit(50)}, []RuleOption{Use(limit.SlidingLog())}, 0},
	} {
		before := newRule(t, l, name, hourly, c.before...)
		if d, err := before.AllowUpTo(t.Context(), "k", 10); err != nil || !d.Allowed {
			t.Fatalf("%s: %+v, %v", name, d, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = before.Wait(ctx, "k", 1)
		}()
		asked := func() bool {
			l.lines.mu.Lock()
			defer l.lines.mu.Unlock()
			for _, q := range l.lines.byKey[before.heldKey(&callKey{original: "k", name: "k"})] {
				return !q.next.IsZero()
			}
			return false
		}
		redistest.Eventually(t, "the first call waits", asked)
		after, err := l.ChangeRule(name, hourly, c.after...)
		if err != nil {
			t.Fatal(err)
		}
		soon, stop := context.WithTimeout(t.Context(), time.Minute)
		switch d, err := after.Wait(soon, "k", 1); {
		case c.most == 0 && err != nil:
			t.Errorf("%s: a unit is free, but: %+v, %v", name, d, err)
		case c.most > 0 && (!errors.Is(err, limit.ErrWouldExceedDeadline) || d.RetryAfter > c.most):
			t.Errorf("%s: %+v, %v; want a wait of up to %v", name, d, err, c.most)
		}
		stop()
		cancel()
		<-ended
	}
}
