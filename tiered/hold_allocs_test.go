package tiered

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// A hold and its settlement by a single caller allocate little more than their two trips: the hold, its key, and
// a note that remembered denials are no longer valid.
func TestHoldAndSettleAllocateLittle(t *testing.T) {
	client := redistest.Shared(t).Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	l := newLimiterOn(t, client, redistest.Prefix(), Deadline(10*time.Second))
	r := newRule(t, l, "r", limit.PerSecond(1_000_000), Use(limit.GCRA()))
	ctx := context.Background()
	n := testing.AllocsPerRun(500, func() {
		h, _, err := r.Hold(ctx, "k", 10, time.Minute)
		if err != nil || h == nil {
			t.Fatal(h, err)
		}
		if err := h.Settle(ctx, 7); err != nil {
			t.Fatal(err)
		}
	})
	trips := testing.AllocsPerRun(500, func() {
		for range 2 {
			if _, err := r.Allow(ctx, "other"); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Logf("a hold and its settlement: %v allocations, two decisions: %v", n, trips)
	if n > trips+8 {
		t.Errorf("a hold and its settlement allocate %v times, two decisions %v", n, trips)
	}
}
