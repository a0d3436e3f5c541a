package tiered

import (
	"fmt"
	"sync"
	"testing"

	"github.com/tierlimit/tierlimit/internal/inspect"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Looking up a key on the live page does not affect decisions.
func TestLookingUnderAnotherLimitLeavesNoTrace(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	newRule(t, l, "r", limit.PerHour(10))
	longest := l.shards.Windows.Longest()
	looked, err := inspect.Of(l).Snapshot().Rules[0].WithLimit(limit.Per(7, limit.MaxWindow))
	if err != nil || looked.Limit != limit.Per(7, limit.MaxWindow) {
		t.Fatalf("%v, %v", looked.Limit, err)
	}
	if d, err := looked.Peek(t.Context(), "k", 7); err != nil || !d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
	if l.shards.Windows.Longest() != longest {
		t.Error("the longest window of all rules is another")
	}
}

// Even with concurrent decisions, the limit that is recorded for a key is one that was applied to
// it, and the records of many keys take no more than the fixed memory.
func TestOwnLimitsAreThoseOfTheirKeys(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	inspect.Of(l).RememberOwnLimits()
	own := l.ownLimits.Load()
	r := newRule(t, l, "r", limit.PerHour(1))
	plans := make([]*Rule, 10)
	for i := range plans {
		var err error
		if plans[i], err = r.WithLimit(limit.PerHour(int64(i + 2))); err != nil {
			t.Fatal(err)
		}
	}
	const keys = 3 * ownLimitsKept
	var deciding sync.WaitGroup
	for range 4 {
		deciding.Go(func() {
			for key := range keys {
				own.decided(plans[key%len(plans)], fmt.Sprint(key))
			}
		})
	}
	deciding.Wait()
	known := 0
	for key := range keys {
		if lim, ok := own.of("r", fmt.Sprint(key)); ok {
			known++
			if want := plans[key%len(plans)].Limit(); lim != want {
				t.Fatalf("key %d is said to have %v, it has %v", key, lim, want)
			}
		}
	}
	if known < ownLimitsKept/2 {
		t.Errorf("of %d keys %d are known", keys, known)
	}
	last := fmt.Sprint(keys - 1)
	if _, ok := own.of("other", last); ok {
		t.Error("a rule's key is another's")
	}
	own.decided(r, last)
	if _, ok := own.of("r", last); ok {
		t.Error("a key that has no limit of its own any more is said to have one")
	}
}
