package main

import (
	"context"
	"errors"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

const (
	holdsGroup      = "holds"
	holdsAloneGroup = "holds-alone"

	nameHoldGCRA    = "tierlimit, GCRA"
	nameHoldCounter = "tierlimit, counter k=16"
	namePlainHold   = "floor: two EVALSHA of plain GCRA"
	nameTwoReturns  = `floor: two EVALSHA "return 1"`

	heldUnits, usedUnits = 10, 7 // units of each hold, and the units that it is settled with
)

// holdGroups hold units and settle with fewer. One decision is both. The reference is two bare calls of a script that
// does nothing, since a hold and its settlement take two trips.
func holdGroups(run string) []group {
	contenders := []contender{
		{nameHoldGCRA, ours, openHolds(limit.GCRA(), func(w *workload) limit.Limit { return w.gcra })},
		{nameHoldCounter, ours, openHolds(limit.SlidingCounter(16, limit.Strict), func(w *workload) limit.Limit { return w.window })},
		{namePlainHold, floor, openPlainHolds},
		{nameTwoReturns, floor, openTwoReturns},
	}
	return []group{
		{name: holdsGroup, title: "Hold + Settle on one hot key, always allowed",
			workload: func() workload { return hotKey(run + ":holds") }, reference: nameTwoReturns, contenders: contenders, share: 1, finer: true},
		{name: holdsAloneGroup, title: "Hold + Settle on one hot key, always allowed, one caller who asks each in turn",
			workload: func() workload { return hotKey(run + ":holds-alone") }, reference: nameTwoReturns, contenders: contenders,
			sizes: inThisProcess(1), share: 1, finer: true, inTurn: true},
	}
}

func openHolds(a limit.Algorithm, of func(*workload) limit.Limit) opener {
	return func(_ context.Context, e environment, w *workload) (*subject, error) {
		limiter, opened, err := openLimiter(e)
		if err != nil {
			return nil, err
		}
		rule, err := addRule(limiter, of(w), a)
		if err != nil {
			return nil, err
		}
		s := overRedis(holdAndSettle(rule), limiter.Close)
		s.opened = opened
		return s, nil
	}
}

func holdAndSettle(rule *tiered.Rule) decide {
	return func(ctx context.Context, key string) (outcome, error) {
		hold, d, err := rule.Hold(ctx, key, heldUnits, time.Minute)
		switch {
		case err != nil:
			return failed, err
		case hold == nil:
			return denied, nil
		}
		if err := hold.Settle(ctx, usedUnits); err != nil {
			return failed, err
		}
		if d.Degraded() {
			return degraded, nil
		}
		return allowed, nil
	}
}

// plainSettle gives back what plainGCRA has charged too much. It knows nothing of holds: if it is sent twice, it
// gives back twice, and a charge that is never settled stays. ARGV has the time that the units take.
const plainSettle = `
local arrival = redis.call('GET', KEYS[1])
if not arrival then
  return 0
end
redis.call('SET', KEYS[1], string.format('%.0f', arrival - ARGV[1]), 'KEEPTTL')
return 1
`

// openPlainHolds charges an estimate and gives back the rest, with the simplest scripts that do so.
func openPlainHolds(ctx context.Context, e environment, w *workload) (*subject, error) {
	client, take, err := loadScript(ctx, e, plainGCRA)
	if err != nil {
		return nil, err
	}
	settle, err := client.ScriptLoad(ctx, plainSettle).Result()
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	interval := w.gcra.Window().Microseconds() / w.gcra.Quota()
	burst := interval * w.gcra.Burst()
	call := func(ctx context.Context, key string) (outcome, error) {
		keys := []string{"plain:" + key}
		n, err := client.EvalSha(ctx, take, keys, heldUnits*interval, burst).Int()
		switch {
		case err != nil:
			return failed, err
		case n == 0:
			return denied, nil
		}
		return reached(client.EvalSha(ctx, settle, keys, (heldUnits-usedUnits)*interval).Err())
	}
	return overRedis(call, client.Close), nil
}

// openTwoReturns runs a script that does nothing twice, one call after the other.
func openTwoReturns(ctx context.Context, e environment, _ *workload) (*subject, error) {
	client, sha, err := loadScript(ctx, e, "return 1")
	if err != nil {
		return nil, err
	}
	call := func(ctx context.Context, key string) (outcome, error) {
		keys := []string{key}
		if err := client.EvalSha(ctx, sha, keys).Err(); err != nil {
			return failed, err
		}
		return reached(client.EvalSha(ctx, sha, keys).Err())
	}
	s := overRedis(call, client.Close)
	s.stateless = true
	return s, nil
}
