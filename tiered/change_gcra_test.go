package tiered_test

import (
	"context"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
	"github.com/tierlimit/tierlimit/tiertest"
)

// A key that has used much of a limit under GCRA is not denied for hours after the limit was lowered.
func TestGCRALimitThatIsLowered(t *testing.T) {
	limiter, clock := tiertest.New(t)
	r := limiter.MustRule("calls", limit.PerMinute(100_000), tiered.Use(limit.GCRA()))
	ctx := context.Background()
	if d, err := r.AllowN(ctx, "tenant", 100_000); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	for _, lowered := range []limit.Limit{limit.PerMinute(1000), limit.Per(1000, time.Second).WithBurst(5000)} {
		r, err := r.WithLimit(lowered)
		if err != nil {
			t.Fatal(err)
		}
		most := 4 * max(lowered.Quota(), lowered.Burst()) // units of debt
		wait := time.Duration(most-lowered.Burst()+1) * lowered.Window() / time.Duration(lowered.Quota())
		if d, err := r.Allow(ctx, "tenant"); err != nil || d.Allowed || d.RetryAfter != wait {
			t.Errorf("%v: %+v, %v; want a denial for %v", lowered, d, err, wait)
		}
	}
	if d, err := r.Peek(ctx, "tenant", 1); err != nil || d.Remaining != 0 {
		t.Errorf("a denial has changed the state: %+v, %v", d, err)
	}
	clock.Advance(4 * time.Minute)
	lowered, err := limiter.ChangeRule("calls", limit.PerMinute(1000), tiered.Use(limit.GCRA()))
	if err != nil {
		t.Fatal(err)
	}
	if d, err := lowered.AllowN(ctx, "tenant", 1000); err != nil || !d.Allowed {
		t.Errorf("four minutes later: %+v, %v", d, err)
	}
}
