package tiered

import "github.com/tierlimit/tierlimit/limit"

// fallback decides without Redis, by the rule's outage policy. Whatever the
// policy, what is granted goes into the ledger: it counts if the policy of
// another rule, or of the same one later, asks.
func (r *Rule) fallback(hash uint64, cost int64) limit.Decision {
	l := r.limiter
	now, window := l.now(), r.limit.Window()
	hash ^= r.ledgerSalt
	switch r.config.policy {
	case Allow:
		l.ledger.Add(hash, window, now, cost)
		return r.decision(limit.TierFallback, limit.Decision{
			Allowed:    true,
			Remaining:  max(0, r.limit.Quota()-cost),
			ResetAfter: window,
		})
	case Deny:
		return r.decision(limit.TierFallback, limit.Decision{RetryAfter: probeEvery, ResetAfter: window})
	}
	granted, free, retryAfter := l.ledger.Take(hash, window, r.share(), now, cost)
	return r.decision(limit.TierFallback, limit.Decision{
		Allowed:    granted,
		Remaining:  free,
		RetryAfter: retryAfter,
		ResetAfter: window,
	})
}

// share is this instance's part of the limit: the same for all instances, and
// one unit at least. So the fleet grants no more than the limit, or one unit per
// instance if it has more instances than units.
func (r *Rule) share() int64 {
	return max(1, r.limit.Quota()/int64(r.limiter.fleet.Size()))
}
