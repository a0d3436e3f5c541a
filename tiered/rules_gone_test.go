package tiered

import (
	"runtime"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// A rule that nothing uses any more has no effect on the limiter: whether it was refused or replaced, the limiter does
// not settle for its window after Redis has lost data, and does not renew the slots of other rules as often as its own.
func TestRulesThatAreGoneHaveNoEffect(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	newRule(t, l, "refused", limit.PerMinute(5))
	newRule(t, l, "slots", limit.Concurrent(5))
	if _, err := l.Rule("refused", limit.Per(5, limit.MaxWindow)); err == nil {
		t.Error("a rule with two limits")
	}
	if _, err := l.Rule("slots", limit.Concurrent(5), SlotTTL(100*time.Millisecond)); err == nil {
		t.Error("a rule with two TTLs")
	}
	newRule(t, l, "replaced", limit.PerDay(5))
	if longest, every := l.shards.Windows.Longest(), l.slots.renewEvery(); longest != limit.MaxWindow || every != int64(100*time.Millisecond/renewals) {
		t.Errorf("at first the longest window is %v, and slots are renewed every %v", longest, time.Duration(every))
	}
	if _, err := l.ChangeRule("replaced", limit.PerMinute(5)); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "only rules in use count", func() bool {
		runtime.GC()
		return l.shards.Windows.Longest() == time.Minute && l.slots.renewEvery() == int64(defaultSlotTTL/renewals)
	})
}
