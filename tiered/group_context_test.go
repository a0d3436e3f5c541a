package tiered

import (
	"context"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Law 6: a group over several slots whose context ends a little before the limiter's deadline is decided like a single
// call: if answers are missing, by the outage policies and without an error, whichever slot they are missing for.
func TestLaw6GroupsWhoseContextLeavesMostOfTheDeadline(t *testing.T) {
	const deadline = 100 * time.Millisecond
	for name, late := range map[string]time.Duration{"no answer": 10 * deadline, "one answer": 60 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
				l := newLimiterOn(t, bubble.Client(t), redistest.Prefix(), Deadline(deadline))
				l.script.DivideBySlot()
				r := newRule(t, l, "r", limit.PerDay(10))
				mustAllow(t, r, "a", 1)
				bubble.Late.Store(int64(late))
				ctx, cancel := context.WithTimeout(t.Context(), deadline*9/10)
				defer cancel()
				began := time.Now()
				ds, err := l.AllowAll(ctx, Request{Rule: r, Key: "a", Cost: 1}, Request{Rule: r, Key: "b", Cost: 1}, Request{Rule: r, Key: "c", Cost: 1})
				if took := time.Since(began); err != nil || !ds[0].Allowed || !ds[2].Degraded() || took > deadline*9/10+time.Millisecond {
					t.Errorf("%+v, %v, after %v", ds, err, took)
				}
			})
		})
	}
}
