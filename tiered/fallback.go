package tiered

import (
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// fallback decides without Redis, by the rule's outage policy. Whatever the
// policy, what is granted goes into the ledger: it counts if the policy of
// another rule, or of the same one later, asks.
func (r *Rule) fallback(hash uint64, cost int64, operation int) limit.Decision {
	l := r.limiter
	now, window := l.now(), r.limit.Window()
	hash ^= r.ledgerSalt
	d := limit.Decision{ResetAfter: window}
	switch {
	case r.config.policy == Deny:
		d.RetryAfter = probeEvery
	case r.config.policy == Allow && operation == lua.Peek:
		d.Allowed, d.Remaining = true, r.limit.Quota()
	case r.config.policy == Allow:
		l.ledger.Add(hash, window, now, cost)
		d.Allowed, d.Granted, d.Remaining = true, cost, max(0, r.limit.Quota()-cost)
	case operation == lua.Peek:
		d.Remaining, d.RetryAfter = l.ledger.Free(hash, window, r.share(), now, cost)
		d.Allowed = d.Remaining >= cost
	case operation == lua.TakeUpTo:
		d.Granted, d.Remaining, d.RetryAfter = l.ledger.TakeUpTo(hash, window, r.share(), now, cost)
		d.Allowed = d.Granted > 0
	default:
		d.Allowed, d.Remaining, d.RetryAfter = l.ledger.Take(hash, window, r.share(), now, cost)
		if d.Allowed {
			d.Granted = cost
		}
	}
	return r.decision(limit.TierFallback, d)
}

// share is this instance's part of the limit: the same for all instances, and
// one unit at least. So the fleet grants no more than the limit, or one unit per
// instance if it has more instances than units.
func (r *Rule) share() int64 {
	return max(1, r.limit.Quota()/int64(r.limiter.fleet.Size()))
}
