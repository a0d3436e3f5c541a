package tiered

import (
	"context"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// allowSeveral decides some requests of the same cost, one after the other up to the first that is
// denied, in one trip. It may stop earlier, but decides at least one, or returns an error. Granted
// requests are counted, and the first one if it is denied.
func (r *Rule) allowSeveral(ctx context.Context, key *callKey, cost, count int64) (allowed []limit.Decision, denied *limit.Decision, err error) {
	q := question{rule: r, key: *key, cost: cost, operation: lua.Take}
	if count == 1 || !q.goesToRedis() {
		return q.allowOneByOne(ctx, count)
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
	for range count {
		d := q.fallback(r.limiter.now(), err)
		if d.Allowed || len(allowed) == 0 {
			_ = q.end(&d, nil)
		}
		if !d.Allowed {
			return allowed, &d, nil
		}
		allowed = append(allowed, d)
	}
	return allowed, nil, nil
}

// goesToRedis reports whether a request is decided by Redis alone, as far as can be known.
func (q *question) goesToRedis() bool {
	r, s := q.rule, q.shard()
	if r.lease != nil || r.config.countDenied || !s.Breaker.Closed() || s.Settling(r.inOutage) {
		return false
	}
	_, known := r.remembered(q.key.hash, r.limiter.now(), q.cost)
	return !known
}

// allowOneByOne is allowSeveral without a shared trip: up to the first request that takes one.
func (q *question) allowOneByOne(ctx context.Context, count int64) (allowed []limit.Decision, denied *limit.Decision, err error) {
	for range count {
		d, err := q.decide(ctx)
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
