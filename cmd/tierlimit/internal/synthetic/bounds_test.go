package synthetic

import (
	"context"
	"testing"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/plan"
)

// Law 1 holds on every load: no candidate exceeds its stated worst case, and strict counters and the
// log never exceed the limit. The adversary reaches the stated worst case.
func TestBoundsHoldOnEveryLoad(t *testing.T) {
	for _, l := range []limit.Limit{limit.PerMinute(10), limit.PerSecond(25)} {
		candidates, err := plan.Candidates(l)
		if err != nil {
			t.Fatal(err)
		}
		for _, load := range Loads {
			traffic := load.Traffic(candidates[0], 2_000)
			for _, c := range candidates {
				if load.ForEach() {
					traffic = load.Traffic(c, 2_000)
				}
				result, err := traffic.Run(context.Background(), c.Limit, c.Algorithm, nil)
				if err != nil {
					t.Fatal(err)
				}
				if n := traffic.Requests(); n < 1_000 || n > 3_000 {
					t.Errorf("%s for %v: %d requests, want about 2,000", load.Name, l, n)
				}
				if result.Worst.Units > c.WorstCase() {
					t.Errorf("%s, %v under %v: %d units in a window, stated are %d", load.Name, l, c, result.Worst.Units, c.WorstCase())
				}
				if load.Name == "adversary" && result.Worst.Units != c.WorstCase() {
					t.Errorf("%v under %v: the adversary gets %d, stated are %d", l, c, result.Worst.Units, c.WorstCase())
				}
				if c.Algorithm == limit.SlidingLog() && result.Wrong.Total() != 0 {
					t.Errorf("%s, %v: the log decides %d requests wrongly", load.Name, l, result.Wrong.Total())
				}
			}
		}
	}
}
