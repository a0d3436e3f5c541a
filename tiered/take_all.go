package tiered

import (
	"context"

	"github.com/tierlimit/tierlimit/limit"
)

// TakeAll is [Limiter.AllowAll] for requests whose units may also come back: it charges, holds and
// acquires all of them or none (law 9), in one trip to Redis where AllowAll takes one. A request's
// units
//
//   - are acquired, as by [Rule.Acquire], if its rule has a limit of [limit.Concurrent];
//   - are held for that time, as by [Rule.Hold], if the request has a Hold;
//   - are charged for good otherwise.
//
// It returns a grant for each request, with its slot or hold, or nil if the requests are denied;
// and a decision for each, as AllowAll does. End the grants with [Grants.Settle] or [Grants.End],
// or each hold and slot by itself.
//
// If a request is denied, on a Cluster those of other slots are given back, within the deadline or
// later: none of their holds and slots is left, even if answers are lost. If the answer to the
// refund of units that were charged for good is lost, they stay charged until they leave the
// window.
//
// Errors and deadline are those of AllowAll and [Rule.Hold]; and [limit.ErrNotForLimit], for a Hold
// with a limit of limit.Concurrent. If a request acquires units, and ctx ends after Redis was
// asked, the call continues, and returns the grants without an error, because otherwise it would
// not be known whether the units were acquired.
func (l *Limiter) TakeAll(ctx context.Context, requests ...Request) (Grants, []limit.Decision, error) {
	grants := make(Grants, len(requests))
	decisions, err := l.decideTogether(ctx, requests, grants)
	if err != nil {
		return nil, nil, err
	}
	if len(decisions) > 0 && !decisions[0].Allowed {
		return nil, decisions, nil
	}
	return grants, decisions, nil
}
