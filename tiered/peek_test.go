package tiered

import (
	"context"
	"testing"

	"github.com/tierlimit/tierlimit/limit"
)

// A peek decides nothing, so it is not counted as a decision. Frequent peeks and invalid peeks do not change the
// monitored rates.
func TestPeekIsNotCounted(t *testing.T) {
	inOutage(t, limit.PerHour(10), func(t *testing.T, r *Rule) {
		count := func() (decisions, errors uint64) {
			for tier := range tiers {
				decisions += r.decisions.sum(tier, 0) + r.decisions.sum(tier, 1)
			}
			return decisions, r.counters.failed.stats().Total()
		}
		mustAllow(t, r, "k", 7)
		for _, cost := range []int64{1, 4, 11} { // allowed, denied, an error
			_, err := r.Peek(context.Background(), "k", cost)
			if (err != nil) != (cost == 11) {
				t.Errorf("cost %d: %v", cost, err)
			}
		}
		if decisions, errors := count(); decisions != 1 || errors != 0 {
			t.Errorf("%v decisions and %v errors counted, want 1 and 0", decisions, errors)
		}
	})
}
