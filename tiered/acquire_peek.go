package tiered

import (
	"context"

	"github.com/tierlimit/tierlimit/breaker"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// peekSlots decides a Peek of a concurrency limit.
func (q *question) peekSlots(ctx context.Context) (limit.Decision, error) {
	r, units := q.rule, q.cost
	if err := r.checkSlots(ctx, q.key.said, units); err != nil {
		return limit.Decision{}, err
	}
	l := r.limiter
	l.roundOfSlots()
	if d, ok := r.remembered(q.key.hash, l.now(), units); ok {
		return d, nil
	}
	s, err := q.shard(), breaker.ErrOpen
	if s.Breaker.Closed() {
		var reply remote.Reply
		if reply, err = s.Decide(ctx, q.entry()); err == nil {
			d := r.fromRedis(&reply, units, lua.Peek)
			r.slotsDenied(&d)
			return d, nil
		}
	}
	if !l.outage(err) {
		return limit.Decision{}, err
	}
	d := r.decision(s.TierWithout(err))
	d.RetryAfter, d.ResetAfter = acquireAgain, r.slotTTL
	switch {
	case r.config.policy == Allow:
		d.Remaining = r.limit.Quota()
	case r.config.policy == Approximate && !s.Breaker.Closed():
		d.Remaining = q.roomAlone()
	}
	if d.Allowed = d.Remaining >= units; d.Allowed {
		d.RetryAfter = 0
	}
	return d, nil
}
