package tiered

import (
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Law 9: a group over several slots that is denied leaves no trace: the units that were charged before leave the window
// when they would have left it without the group.
func TestLaw9DeniedGroupsKeepNoUnitsInTheWindow(t *testing.T) {
	for _, a := range []limit.Algorithm{limit.SlidingLog(), limit.SlidingLogZSet(), limit.SlidingCounter(60, limit.Strict), limit.GCRA()} {
		redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
			l := newLimiterOn(t, bubble.Client(t), redistest.Prefix())
			l.script.DivideBySlot()
			tenant := newRule(t, l, "tenant", limit.PerMinute(100), Use(a))
			endpoint := newRule(t, l, "endpoint", limit.PerDay(10), Use(limit.SlidingLog()))
			mustAllow(t, endpoint, "e", 10)
			mustAllow(t, tenant, "t", 50)
			for range 60 {
				ds, err := l.AllowAll(t.Context(), Request{Rule: tenant, Key: "t", Cost: 1}, Request{Rule: endpoint, Key: "e", Cost: 1})
				if err != nil || ds[0].Allowed {
					t.Fatalf("%+v, %v", ds, err)
				}
				time.Sleep(1100 * time.Millisecond) // the denial is forgotten
			}
			if free := left(t, tenant, "t"); free != 100 {
				t.Errorf("%v: %d units are free after a window without a grant, want 100", a, free)
			}
			if n := recorded(tenant, "t"); n != 0 {
				t.Errorf("%v: this instance's record has %d units, want none", a, n)
			}
		})
	}
}
