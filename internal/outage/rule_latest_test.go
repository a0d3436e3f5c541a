package outage

import (
	"math/rand/v2"
	"testing"
)

// A rule that takes over is the latest for itself and for the rule before it, in whatever order rules take over from each
// other, and looking for the latest rule always comes to an end.
func TestLatestOfRulesThatTakeOver(t *testing.T) {
	rules := make([]Rule, 12)
	random := func() *Rule { return &rules[rand.IntN(len(rules))] }
	for range 20_000 {
		r, before := random(), random()
		if rand.IntN(10) == 0 {
			before = nil
		}
		first := random()
		follows := before != nil && first.Latest() == before
		r.TakeOver(before)
		if latest := r.Latest(); latest != r && before != r {
			t.Fatal("a rule that has taken over is not its own latest")
		}
		if before != nil && before.Latest() != r.Latest() {
			t.Fatal("the rule before does not lead to the one that took over")
		}
		if follows && first.Latest() != before.Latest() && first != r && r != before {
			t.Fatal("an earlier rule does not lead to the one that took over")
		}
	}
}

// Two copies of a rule may take over from it, each for other keys. Each of them is its own latest.
func TestLatestOfTwoThatTakeOverFromOne(t *testing.T) {
	var base, one, other Rule
	one.TakeOver(&base)
	other.TakeOver(&base)
	if one.Latest() != &one || other.Latest() != &other || base.Latest() != &other {
		t.Error("a rule that has taken over is not its own latest, or the base does not lead to the last one")
	}
}

// Law 7: a rule that is kept keeps only the last of those that came after it.
func TestLaw7SuccessorsInBetweenAreNotKept(t *testing.T) {
	var rules [4]Rule
	for i := 1; i < len(rules); i++ {
		rules[i].TakeOver(&rules[i-1])
	}
	if last := rules[0].succession.Load().last.Load(); last != &rules[3] {
		t.Error("the first rule refers to one in between")
	}
}

// The same is true if those that came after it have also taken over from other rules, as a rule does when it applies
// again to keys that had limits of their own.
func TestLaw7SuccessorsOfSeveralRulesAreNotKept(t *testing.T) {
	rules := make([]Rule, 10)
	for i := 1; i < len(rules); i++ {
		var own Rule
		rules[i].TakeOver(&rules[i-1])
		rules[i].TakeOver(&own)
		if own.Latest() != &rules[i] {
			t.Fatal("the rule of one key does not lead to the one that took over")
		}
	}
	last := &rules[len(rules)-1]
	if kept := rules[0].succession.Load().last.Load(); kept != last || rules[0].Latest() != last {
		t.Error("the first rule refers to one in between")
	}
}
