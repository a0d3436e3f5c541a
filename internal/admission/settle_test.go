package admission_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/admission"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// Each charge is corrected to what the call used, and no correction of nothing is sent, because it would be an error.
func TestSettleCorrectsCharges(t *testing.T) {
	l := open(t)
	rate := l.MustRule("rate", limit.PerMinute(100))
	for _, test := range []struct {
		what         string
		actual, want int64
		ago          time.Duration
	}{
		{"as charged", 10, 10, 0},
		{"more", 13, 13, 0},
		{"more than can be counted", math.MaxInt64, 100, 0},
		{"less", 7, 7, 0},
		{"nothing", 0, 0, 0},
		{"less than nothing", -1, 0, 0},
		{"less, after the window: Redis knows what has left it", 7, 7, time.Minute},
		{"as charged, after the window", 10, 10, time.Minute},
	} {
		q := tiered.Request{Rule: rate, Key: test.what, Cost: 10}
		d, err := rate.AllowN(context.Background(), q.Key, q.Cost)
		if err != nil {
			t.Fatal(err)
		}
		if err := admission.Settle(context.Background(), q, &d, test.actual, test.ago); err != nil {
			t.Errorf("%s: %v", test.what, err)
		}
		if d, err = rate.Peek(context.Background(), q.Key, 1); err != nil || 100-d.Remaining != test.want {
			t.Errorf("%s: %d units stay charged, want %d (%v)", test.what, 100-d.Remaining, test.want, err)
		}
	}
}

// A function that chooses the rule may choose one with slots, which are given back when the call is over. There is
// no charge to correct then.
func TestSettleLeavesSlotsAlone(t *testing.T) {
	rule := open(t).MustRule("slots", limit.Concurrent(10))
	for _, actual := range []int64{0, 2, 5} {
		q := tiered.Request{Rule: rule, Key: "key", Cost: 2}
		d := limit.Decision{Allowed: true, Granted: 2}
		if err := admission.Settle(context.Background(), q, &d, actual, 0); err != nil {
			t.Errorf("%d units used: %v", actual, err)
		}
	}
}
