package main

import (
	"context"
	"errors"

	"github.com/go-redis/redis_rate/v10"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

const (
	togetherGroup = "together"
	fleetTogether = "fleet-together"

	nameTogetherLog = "tierlimit, sliding log and GCRA"
	nameThreeCalls  = "redis_rate, three calls"
	namePlainThree  = "floor: EVALSHA of plain GCRA, three keys"
)

// togetherGroups return groups that ask for three limits with each request, as services do: a user's, the tenant's
// and one that everybody shares. One decision is all three.
func togetherGroups(s settings, run string) []group {
	contenders := []contender{
		{nameGCRA, ours, openTogether(limit.GCRA(), func(w *workload) limit.Limit { return w.gcra })},
		{nameTogetherLog, ours, openTogether(limit.SlidingLog(), func(w *workload) limit.Limit { return w.log })},
		{nameThreeCalls, peer, openThreeCalls},
		{namePlainThree, floor, openPlainThree},
	}
	title := "Three limits of each request: of " + thousands(float64(s.Keys)) + " users, 100 tenants and everybody, always allowed"
	return []group{
		{name: togetherGroup, title: title, workload: func() workload { return manyKeys(run+":together", s.Keys) },
			reference: nameThreeCalls, contenders: contenders, share: 1},
		{name: fleetTogether, title: title + ", many processes", workload: func() workload { return manyKeys(run+":fleet-together", s.Keys) },
			reference: nameThreeCalls, contenders: contenders, sizes: s.Fleet, share: 1, prefill: true},
	}
}

const everybody = "everybody"

// tenantOf returns the tenant that a user belongs to. Users are numbered, and are spread over a hundred
// tenants by their last two digits.
func tenantOf(user string) string { return "tenant-" + user[max(0, len(user)-2):] }

// sharedLimit returns the limit of a tenant, and of everybody, under GCRA.
func sharedLimit() limit.Limit { return hotKey("").gcra }

// openTogether opens a limiter with a rule for users, and GCRA rules for tenants and for everybody.
func openTogether(a limit.Algorithm, of func(*workload) limit.Limit) opener {
	return func(_ context.Context, e environment, w *workload) (*subject, error) {
		limiter, opened, err := openLimiter(e)
		if err != nil {
			return nil, err
		}
		users, err := addRule(limiter, of(w), a)
		if err != nil {
			return nil, err
		}
		tenants, err1 := limiter.Rule("tenant", sharedLimit(), tiered.Use(limit.GCRA()))
		all, err2 := limiter.Rule("everybody", sharedLimit(), tiered.Use(limit.GCRA()))
		if err := errors.Join(err1, err2); err != nil {
			return nil, errors.Join(err, limiter.Close())
		}
		decide := func(ctx context.Context, user string) (outcome, error) {
			ds, err := limiter.AllowAll(ctx, tiered.Request{Rule: users, Key: user, Cost: 1},
				tiered.Request{Rule: tenants, Key: tenantOf(user), Cost: 1}, tiered.Request{Rule: all, Key: everybody, Cost: 1})
			switch {
			case err != nil:
				return failed, err
			case ds[0].Degraded():
				return degraded, nil
			}
			return verdict(ds[0].Allowed), nil
		}
		s := overRedis(decide, limiter.Close)
		s.opened = opened
		s.use = func(ctx context.Context, key string, units int) error {
			_, err := users.AllowN(ctx, key, int64(units))
			return err
		}
		return s, nil
	}
}

// openThreeCalls asks redis_rate for one limit after the other. If one of them denies, what was charged before stays
// charged.
func openThreeCalls(_ context.Context, e environment, w *workload) (*subject, error) {
	client, err := newClient(e)
	if err != nil {
		return nil, err
	}
	limiter := redis_rate.NewLimiter(client)
	own, shared := redisRateLimit(w.gcra), redisRateLimit(sharedLimit())
	decide := func(ctx context.Context, user string) (outcome, error) {
		for _, asked := range []struct {
			key string
			lim redis_rate.Limit
		}{{user, own}, {tenantOf(user), shared}, {everybody, shared}} {
			result, err := limiter.Allow(ctx, asked.key, asked.lim)
			switch {
			case err != nil:
				return failed, err
			case result.Allowed == 0:
				return denied, nil
			}
		}
		return allowed, nil
	}
	s := overRedis(decide, client.Close)
	s.use = func(ctx context.Context, key string, units int) error {
		_, err := limiter.AllowN(ctx, key, own, units)
		return err
	}
	return s, nil
}

// plainThree is plainGCRA for several keys, all or none, and nothing more. ARGV has for each key the interval of a
// unit, and the time that the burst takes.
const plainThree = `
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local arrivals = redis.call('MGET', unpack(KEYS))
for i = 1, #KEYS do
  arrivals[i] = math.max(now, tonumber(arrivals[i] or 0)) + ARGV[2 * i - 1]
  if arrivals[i] - now > tonumber(ARGV[2 * i]) then
    return 0
  end
end
for i = 1, #KEYS do
  redis.call('SET', KEYS[i], string.format('%.0f', arrivals[i]), 'PX', math.ceil((arrivals[i] - now) / 1000))
end
return 1
`

// openPlainThree makes a bare call of plainThree.
func openPlainThree(ctx context.Context, e environment, w *workload) (*subject, error) {
	client, sha, err := loadScript(ctx, e, plainThree)
	if err != nil {
		return nil, err
	}
	interval := func(l limit.Limit) int64 { return l.Window().Microseconds() / l.Quota() }
	own, shared := interval(w.gcra), interval(sharedLimit())
	ownBurst, sharedBurst := own*w.gcra.Burst(), shared*sharedLimit().Burst()
	decide := func(ctx context.Context, user string) (outcome, error) {
		n, err := client.EvalSha(ctx, sha, []string{"plain:" + user, "plain:" + tenantOf(user), "plain:" + everybody},
			own, ownBurst, shared, sharedBurst, shared, sharedBurst).Int()
		if err != nil {
			return failed, err
		}
		return verdict(n == 1), nil
	}
	return overRedis(decide, client.Close), nil
}
