package admission_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/admission"
	"github.com/tierlimit/tierlimit/limit"
)

// The error of a call that is not sent tells its caller whether to try again: the quota is used up, or the call
// itself has ended, or the program has a mistake.
func TestErrorsOfOutgoingCalls(t *testing.T) {
	rule := open(t).MustRule("upstream", limit.PerMinute(1))
	over := func() context.Context {
		ctx, cancel := context.WithDeadline(context.Background(), time.Now())
		t.Cleanup(cancel)
		return ctx
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	call := context.Background()
	if d, err := admission.Wait(call, call, 0, rule, "used up", 1); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	for _, test := range []struct {
		what          string
		call, waiting context.Context
		longest       time.Duration
		key           string
		cost          int64
		want          error
	}{
		{"no room, without a wait", call, call, 0, "used up", 1, limit.ErrWouldExceedDeadline},
		{"no room, and the longest wait is over", call, over(), time.Second, "used up", 1, limit.ErrWouldExceedDeadline},
		{"the call's time is over", over(), over(), time.Second, "used up", 1, context.DeadlineExceeded},
		{"the call is cancelled", cancelled, cancelled, time.Second, "used up", 1, context.Canceled},
		{"the call is cancelled, without a wait", cancelled, cancelled, 0, "used up", 1, context.Canceled},
		{"a mistake", call, call, time.Second, "other", 2, limit.ErrCostExceedsLimit},
		{"a mistake, without a wait", call, call, 0, "other", 2, limit.ErrCostExceedsLimit},
	} {
		if _, err := admission.Wait(test.call, test.waiting, test.longest, rule, test.key, test.cost); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.what, err, test.want)
		}
	}
}
