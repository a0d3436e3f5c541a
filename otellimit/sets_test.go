package otellimit_test

import (
	"testing"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// The number of attribute sets of a rule, from which users compute a cardinality limit, is what the package says.
func TestAttributeSetsOfARule(t *testing.T) {
	l := newLimiter(t)
	collect := register(t, l)
	change := func(want int, options ...tiered.RuleOption) {
		if _, err := l.ChangeRule("r", limit.PerMinute(5), options...); err != nil {
			t.Fatal(err)
		}
		if sets := len(collect()["tierlimit_decisions_total"].values); sets != want {
			t.Errorf("%d attribute sets, want %d", sets, want)
		}
	}
	change(10, tiered.DryRun())
	change(25)
	if _, err := l.Rule("other", limit.PerMinute(5)); err != nil {
		t.Fatal(err)
	}
	change(25+15, tiered.DryRun())
}
