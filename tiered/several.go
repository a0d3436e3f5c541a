package tiered

import (
	"context"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// allowSeveral decides up to count requests of the same cost, one after the other up to the first that
// is denied, with one trip. It may stop earlier, but decides at least one unless it returns an error. It
// counts the grants, and a denial only if it is the first decision.
func (q *question) allowSeveral(ctx context.Context, count int64) (allowed []limit.Decision, denied *limit.Decision, err error) {
	r, cost := q.rule, q.cost
	if count == 1 || !q.goesToRedis() {
		return q.oneByOne(count, func() (limit.Decision, error) { return q.decide(ctx) })
	}
	e := q.entry()
	e.Count = count
	reply, err := q.shard().Decide(ctx, e)
	switch {
	case err == nil:
		d := r.fromRedis(&reply, cost, lua.Take)
		for i := range reply.Fitted {
			one := d
			one.Allowed, one.Granted, one.RetryAfter = true, cost, 0
			one.Remaining += (reply.Fitted - 1 - i) * cost
			_ = q.end(&one, nil)
			allowed = append(allowed, one)
		}
		if reply.Fitted < count {
			d.Granted, d.ChargedAt = 0, 0
			denied = &d
		}
		if len(allowed) == 0 {
			_ = q.end(&d, nil)
		}
		return allowed, denied, nil
	case !r.limiter.outage(err):
		return nil, nil, err
	}
	return q.oneByOne(count, func() (limit.Decision, error) { return q.fallback(r.limiter.now(), err), nil })
}

// goesToRedis reports whether, as far as is known, Redis alone will decide the request.
func (q *question) goesToRedis() bool {
	r, s := q.rule, q.shard()
	if r.lease != nil || r.config.countDenied || !s.Breaker.Closed() || s.Settling(r.inOutage) {
		return false
	}
	_, known := r.remembered(q.key.hash, r.limiter.now(), q.cost)
	return !known
}

// oneByOne is allowSeveral without a common trip. It stops after the first decision by Redis.
func (q *question) oneByOne(count int64, decide func() (limit.Decision, error)) (allowed []limit.Decision, denied *limit.Decision, err error) {
	for range count {
		d, err := decide()
		switch {
		case err != nil && len(allowed) == 0:
			return nil, nil, err
		case err != nil:
			return allowed, nil, nil // the next caller gets the error
		case d.Allowed || len(allowed) == 0:
			_ = q.end(&d, nil)
		}
		if !d.Allowed {
			return allowed, &d, nil
		}
		if allowed = append(allowed, d); d.Tier == limit.TierRedis {
			break
		}
	}
	return allowed, nil, nil
}
