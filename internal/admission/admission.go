// Package admission decides about a call that several limits apply to ([Limit], [Decide]), and lets
// outgoing calls wait ([Wait]). The middleware and clients for HTTP and gRPC share it.
package admission

import (
	"context"
	"errors"
	"slices"

	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// Decide charges all requests or none (law 9) and stores the decisions in decisions, which must be as
// long as requests. Either all of them allow the call, or none does. The caller must end the grants when the
// call is over. There are no grants if no rule has a limit of [limit.Concurrent].
func Decide(ctx context.Context, limiter *tiered.Limiter, requests []tiered.Request, decisions []limit.Decision) (grants tiered.Grants, err error) {
	var all []limit.Decision
	switch {
	case slices.ContainsFunc(requests, func(q tiered.Request) bool { return q.Rule.Limit().IsConcurrent() }):
		grants, all, err = limiter.TakeAll(ctx, requests...)
	case len(requests) == 1: // costs less than a group of one
		decisions[0], err = requests[0].Rule.AllowN(ctx, requests[0].Key, requests[0].Cost)
		return nil, err
	default:
		all, err = limiter.AllowAll(ctx, requests...)
	}
	copy(decisions, all)
	return grants, err
}

// IsMistake reports whether an error of [Decide] will recur until the program is changed.
func IsMistake(err error) bool {
	mistakes := []error{limit.ErrInvalidCost, limit.ErrCostExceedsLimit, limit.ErrInvalidRule, limit.ErrInvalidKey}
	return slices.ContainsFunc(mistakes, func(mistake error) bool { return errors.Is(err, mistake) })
}

// ByOutage reports whether a rule denied a request only because Redis cannot be asked and the rule then
// lets nothing through, not because of what the request's key has used. After an outage, for up to a
// window, requests need room in this instance's share as well, and a denial by that share has the same
// tier. It says when there is room, whereas the policy's denial always says when Redis is probed again.
func ByOutage(rule *tiered.Rule, d *limit.Decision) bool {
	return UnderOutagePolicy(rule, d) && d.RetryAfter == outage.ProbeEvery
}

// UnderOutagePolicy is like [ByOutage] for a decision of tiered.Rule.Wait, which does not tell the two
// apart: its RetryAfter is what is left until the queue asks again.
func UnderOutagePolicy(rule *tiered.Rule, d *limit.Decision) bool {
	return d.Denied() && d.Degraded() && rule.OutagePolicy() == tiered.Deny
}
