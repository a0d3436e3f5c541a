package tiered

import (
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// An error about options that do not go together names the option, and the limit as the program has written it.
func TestRefusedOptionsAreNamed(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	for _, tc := range []struct {
		limit   limit.Limit
		options []RuleOption
		words   string
	}{
		{limit.Concurrent(5), []RuleOption{Lease(50)}, "Lease cannot be combined with the limit 5/concurrent"},
		{limit.Concurrent(5), []RuleOption{LeaseWithinLimit(50)}, "LeaseWithinLimit cannot be combined with the limit 5/concurrent"},
		{limit.PerMinute(250_000), []RuleOption{Use(limit.SlidingLog()), LeaseWithinLimit(10)}, "LeaseWithinLimit of 10 % leaves 225000/1m of the limit 250000/1m"},
		{limit.PerMinute(150_000), []RuleOption{Shadow(1)}, `rule "r": ` + limit.ErrInvalidAlgorithm.Error() + ": Shadow"},
		{limit.PerMinute(150_000), []RuleOption{Shadow(1)}, "the limit is 150000/1m"},
		{limit.PerCalendar(5, limit.CalendarDay, time.UTC), []RuleOption{Shadow(1)}, "no calendar windows; the limit is 5/day@UTC"},
		{limit.PerMinute(5), []RuleOption{Use(limit.FixedWindow()), CountDenied(), Unsettled(GiveBack)}, "CountDenied and Unsettled of give back"},
	} {
		if _, err := l.Rule("r", tc.limit, tc.options...); err == nil || !strings.Contains(err.Error(), tc.words) || strings.Contains(err.Error(), "burst") {
			t.Errorf("%v: %v; want an error with %q", tc.limit, err, tc.words)
		}
	}
}
