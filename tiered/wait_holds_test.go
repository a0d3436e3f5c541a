package tiered

import (
	"context"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Held units that nobody settles are free when their hold ends, if the rule gives them back. Waiters get them then,
// although they would leave the window only much later, with and without a deadline.
func TestWaitersGetWhatAHoldGivesBackAtItsEnd(t *testing.T) {
	t.Parallel()
	client, prefix := redistest.Shared(t).Client(t), redistest.Prefix()
	for _, a := range []limit.Algorithm{limit.SlidingLog(), limit.GCRA(), limit.SlidingCounter(4, limit.Strict), limit.FixedWindow()} {
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			holder, waits := newLimiterOn(t, client, prefix), newLimiterOn(t, client, prefix)
			l := limit.Per(10, 8760*time.Hour) // no window ends during the test
			const life = 1500 * time.Millisecond
			hold, d, err := newRule(t, holder, a.Name(), l, Use(a), Unsettled(GiveBack)).Hold(t.Context(), "k", 10, life)
			if err != nil || hold == nil {
				t.Fatalf("%+v, %v", d, err)
			}
			rule := newRule(t, waits, a.Name(), l, Use(a), Unsettled(GiveBack))
			for _, deadline := range []bool{true, false} {
				ctx, cancel := context.WithCancel(t.Context())
				if deadline {
					ctx, cancel = context.WithTimeout(t.Context(), 20*time.Second)
				}
				time.AfterFunc(20*time.Second, cancel)
				if d, err := rule.Wait(ctx, "k", 1); err != nil || !d.Allowed {
					t.Errorf("deadline %v: %+v, %v; the hold has ended after %v", deadline, d, err, life)
				}
				cancel()
			}
		})
	}
}
