package main

import (
	"context"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

const (
	holdsGroup      = "holds"
	holdsAloneGroup = "holds-alone"

	nameHoldGCRA    = "tierlimit, GCRA"
	nameHoldCounter = "tierlimit, counter k=16"
	nameTwoReturns  = `floor: two EVALSHA "return 1"`

	heldUnits, usedUnits = 10, 7 // of each hold, and what it is settled with
)

// holdGroups hold units and settle with fewer: a decision is both. They are compared with two
// bare calls of a script that does nothing, since two trips is what they take.
func holdGroups(run string) []group {
	contenders := []contender{
		{nameHoldGCRA, ours, openHolds(limit.GCRA(), func(w *workload) limit.Limit { return w.gcra })},
		{nameHoldCounter, ours, openHolds(limit.SlidingCounter(16, limit.Strict), func(w *workload) limit.Limit { return w.window })},
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
