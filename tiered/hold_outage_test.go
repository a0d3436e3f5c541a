package tiered

import (
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/limit"
)

// Law 11: units that are given back soon, because a hold was estimated high or because of a refund, leave the
// instance's record at the time at which they were granted, as they do in Redis. So records have no more units than
// Redis counts, and the shares made of them stay within their bound when Redis is lost. And what an instance gives back
// in an outage, it can grant again.
func TestLaw11WhatIsGivenBackIsNotOnRecord(t *testing.T) {
	t.Parallel()
	const cost, used, window, windows = 20, 4, 10 * time.Second, 3
	hold := func(t *testing.T, r *Rule) bool {
		h, _, err := r.Hold(t.Context(), "k", cost, window)
		if err != nil {
			t.Fatal(err)
		}
		if h != nil {
			mustSettle(t, h, used)
		}
		return h != nil
	}
	refund := func(t *testing.T, r *Rule) bool {
		d := mustAllow(t, r, "k", cost)
		if d.Allowed {
			mustRefund(t, r, "k", &d, cost-used)
		}
		return d.Allowed
	}
	strict, estimate := limit.SlidingCounter(16, limit.Strict), limit.SlidingCounter(16, limit.Estimate)
	for _, c := range []struct {
		name      string
		algorithm limit.Algorithm
		use       func(*testing.T, *Rule) bool
		again     bool // also in the outage
	}{
		{"holds under a log", limit.SlidingLog(), hold, true},
		{"holds under a counter", strict, hold, true},
		{"refunds under a counter", strict, refund, false},
		{"refunds under an estimate", estimate, refund, false},
		{"refunds under a fixed window", limit.FixedWindow(), refund, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			fleet := newChanging(t, c.algorithm, window, 4, []float64{0, 0, 0, 0})
			offer := func() (inLast int64) { // three times the limit, if all were granted; returns what the last window used
				const steps = 300 // per window
				for step := range windows * steps {
					fleet.clock.advance(window / steps)
					for _, p := range fleet.parts {
						if c.use(t, p.rule) && step >= (windows-1)*steps {
							inLast += used
						}
					}
				}
				return inLast
			}
			offer()
			fleet.lose(fleet.server.Kill)
			if c.again {
				if inLast := offer(); inLast < changingQuota*3/4 {
					t.Errorf("%d units were used in the last window without Redis, of %d", inLast, changingQuota)
				}
			}
			for i := range fleet.parts {
				fleet.parts[i].load = 3
			}
			fleet.play(windows * window)
			fleet.holds(2-1.0/4, false)
		})
	}
}
