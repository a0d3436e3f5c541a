package admission

import (
	"context"
	"errors"
	"time"

	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// CheckOutgoing returns an error if outgoing calls cannot be charged under the rule. whose names the
// owner of the rule in the error.
func CheckOutgoing(rule *tiered.Rule, whose string) error {
	if rule == nil {
		return option.Invalid("the %s's rule is nil", whose)
	}
	if rule.Name() == "" { // a limiter's rules have names
		return option.Invalid("the %s's rule was not made by a limiter (tiered.Limiter.Rule)", whose)
	}
	if rule.Limit().IsConcurrent() {
		return option.Invalid("rule %q has the concurrency limit %v: outgoing calls can only be limited by a rate", rule.Name(), rule.Limit())
	}
	return nil
}

// Wait waits for room and charges a call. The context call ends with the call; the context waiting also
// ends after the longest wait. If longest is 0, Wait does not wait. If the cost is not granted in time,
// the error is [limit.ErrWouldExceedDeadline], and the decision says how long the wait would be, or 0 if the
// time was over while Redis was being asked. If the call has ended, the error is its context's.
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
