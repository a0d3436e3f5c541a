package admission

import (
	"context"
	"errors"
	"time"

	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// CheckOutgoing returns what is wrong with the rule of whoever charges calls before it makes them,
// which whose names.
func CheckOutgoing(rule *tiered.Rule, whose string) error {
	if rule == nil {
		return option.Invalid("the %s's rule is nil", whose)
	}
	if rule.Limit().IsConcurrent() {
		return option.Invalid("rule %q has the limit %v: outgoing calls are limited by rates only", rule.Name(), rule.Limit())
	}
	return nil
}

// CheckWait returns what is wrong with the longest that a call may wait.
func CheckWait(d time.Duration) error {
	return option.Check(d >= 0, "longest wait %v, must not be negative", d)
}

// Wait waits for room and charges a call. call ends with it, and waiting with the longest wait, which
// is not waited for if it is 0. That this is over is told as [limit.ErrWouldExceedDeadline], with the
// decision that says for how long; the end of the call as its context's error.
func Wait(call, waiting context.Context, longest time.Duration, rule *tiered.Rule, key string, cost int64) (limit.Decision, error) {
	if longest == 0 {
		d, err := rule.AllowN(call, key, cost)
		if err == nil && !d.Allowed {
			err = limit.ErrWouldExceedDeadline
		}
		return d, err
	}
	d, err := rule.Wait(waiting, key, cost)
	if err != nil && call.Err() != nil {
		return d, call.Err()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = limit.ErrWouldExceedDeadline
	}
	return d, err
}
