package tiered

import (
	"errors"
	"time"

	"github.com/tierlimit/tierlimit/breaker"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// account is what the ledger has to know of a key.
func (r *Rule) account(key *callKey) local.Account {
	return local.Account{Hash: key.hash ^ r.ledgerSalt, Window: r.limit.Window(), Quota: r.limit.Quota(), Owner: r, Key: string(key.inRedis())}
}

// fallback decides without Redis, by the rule's outage policy. Whatever the
// policy, what is granted goes into the ledger: it counts if the policy of
// another rule, or of the same one later, asks; and Redis will be told.
//
// err is what came of asking Redis. If Redis may have decided all the same, what is
// granted here is not charged there later: once for that decision is the most (law 3).
func (r *Rule) fallback(s *shard, now int64, key *callKey, cost int64, operation int, err error) limit.Decision {
	l := r.limiter
	s.missed(err)
	a := r.account(key)
	a.Charged = mayBeCharged(err)
	key.hold.decidedWithout(a.Charged)
	d := r.decision(s.tierWithout(err))
	d.ResetAfter = r.limit.Window()
	switch {
	case r.config.policy == Deny:
		d.RetryAfter = probeEvery
	case r.config.policy == Allow && operation == lua.Peek:
		d.Allowed, d.Remaining = true, r.limit.Quota()
	case r.config.policy == Allow:
		l.ledger.Add(&a, now, cost)
		d.Allowed, d.Granted, d.Remaining = true, cost, max(0, r.limit.Quota()-cost)
	case operation == lua.Peek:
		free, retryAfter := l.ledger.Free(&a, s.outage(), now, cost)
		d.Allowed, d.Remaining, d.RetryAfter = free >= cost, free, min(retryAfter, retryWithin)
	case operation == lua.TakeUpTo:
		granted(&d, l.ledger.TakeUpTo(&a, s.outage(), now, cost))
	default:
		granted(&d, l.ledger.Take(&a, s.outage(), now, cost))
	}
	return d
}

// tierWithout is who decides if asking Redis came to err: that it had no time is load while it
// answers others.
func (s *shard) tierWithout(err error) limit.Tier {
	if errors.Is(err, remote.ErrNoAnswer) && s.silence.Load() == nil && s.breaker.Closed() {
		return limit.TierOverload
	}
	return limit.TierFallback
}

// mayBeCharged reports whether Redis may have charged what it was asked for.
func mayBeCharged(err error) bool {
	return !errors.Is(err, breaker.ErrOpen) && remote.MayHaveRun(err)
}

// retryWithin is the longest RetryAfter that is told without Redis: it may be back by then,
// and have more to give than this instance's share (law 11).
const retryWithin = 5 * time.Second

// granted puts the ledger's answer into a decision.
func granted(d *limit.Decision, g local.Grant) {
	d.Allowed, d.Granted, d.Remaining, d.RetryAfter = g.Granted > 0, g.Granted, g.Free, min(g.RetryAfter, retryWithin)
}
