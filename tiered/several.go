package tiered

import (
	"context"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// allowSeveral decides some requests of the same cost, one after the other up to the first that is
// denied, with one trip. It may stop before; but one is decided at least, or there is an
// error. Those that were granted are counted, and the first if it is denied.
func (r *Rule) allowSeveral(ctx context.Context, key *callKey, cost, count int64) (allowed []limit.Decision, denied *limit.Decision, err error) {
	if count == 1 || !r.goesToRedis(key, cost) {
		return r.allowOneByOne(ctx, key, cost, count)
	}
	l := r.limiter
	s, e := l.shardOf(key), r.entry(key, cost, lua.Take)
	e.Count = count
	reply, err := s.Decide(ctx, e)
	switch {
	case err == nil:
		d := r.fromRedis(&reply, cost, lua.Take)
		for i := range reply.Fitted {
			one := d
			one.Allowed, one.Granted, one.RetryAfter = true, cost, 0
			one.Remaining += (reply.Fitted - 1 - i) * cost
			_ = r.end(key, cost, lua.Take, &one, nil)
			allowed = append(allowed, one)
		}
		if reply.Fitted < count {
			d.Granted, d.ChargedAt = 0, 0
			denied = &d
		}
		if len(allowed) == 0 {
			_ = r.end(key, cost, lua.Take, &d, nil)
		}
		return allowed, denied, nil
	case !l.outage(err):
		return nil, nil, err
	}
	for range count {
		d := r.fallback(s, l.now(), key, cost, lua.Take, err)
		if d.Allowed || len(allowed) == 0 {
			_ = r.end(key, cost, lua.Take, &d, nil)
		}
		if !d.Allowed {
			return allowed, &d, nil
		}
		allowed = append(allowed, d)
	}
	return allowed, nil, nil
}

// goesToRedis reports whether a request is decided by Redis alone, as far as can be known.
func (r *Rule) goesToRedis(key *callKey, cost int64) bool {
	l := r.limiter
	s := l.shardOf(key)
	if r.lease != nil || r.config.countDenied || !s.Breaker.Closed() || s.Settling(r.inOutage) {
		return false
	}
	_, known := r.remembered(key.hash, l.now(), cost)
	return !known
}

// allowOneByOne is allowSeveral without a common trip: up to the first that takes one.
func (r *Rule) allowOneByOne(ctx context.Context, key *callKey, cost, count int64) (allowed []limit.Decision, denied *limit.Decision, err error) {
	for range count {
		d, err := r.decide(ctx, key, cost, lua.Take)
		switch {
		case err != nil && len(allowed) == 0:
			return nil, nil, err
		case err != nil:
			return allowed, nil, nil // who is next will be told
		case d.Allowed || len(allowed) == 0:
			_ = r.end(key, cost, lua.Take, &d, nil)
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
