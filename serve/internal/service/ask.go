package service

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// ask decides all descriptors, and charges as debt what was used and did not fit. The outage policies decide what Redis
// has not decided by the given time.
func (s *Service) ask(ctx context.Context, all []asked, by time.Time) error {
	if len(all) == 1 { // as in most requests
		if a := &all[0]; a.limit != nil && a.charges() && s.fits(a) && !a.limit.Terms.Debt {
			return a.ask(ctx) // one trip, bounded by the limiter's deadline
		}
	}
	ctx = tiered.DecideBy(ctx, by)
	if err := s.decideAll(ctx, all); err != nil {
		return err
	}
	s.chargeDebts(ctx, all)
	return nil
}

// decideAll decides all descriptors in up to two trips. The first decides each descriptor on its own that charges what
// it denies or cannot deny the request. The second charges all or none of the descriptors that charge only what is
// allowed, unless the first denied the request.
func (s *Service) decideAll(ctx context.Context, all []asked) error {
	each := make([]*asked, 0, len(all))
	var together, given []*asked
	for i := range all {
		a := &all[i]
		if a.limit == nil {
			continue
		}
		if a.negative && a.hits > 0 && a.rule != nil {
			given = append(given, a)
		}
		switch {
		case !a.charges():
			if a.rule != nil {
				each = append(each, a)
			}
		case !s.fits(a):
		case a.limit.Terms.Counted && !a.limit.Terms.Debt && s.isEnforced(a) && !s.options.ChargeSeparately:
			together = append(together, a)
		default:
			each = append(each, a)
		}
	}
	doAll(given, func(a *asked) { s.giveBack(ctx, a) })
	if !mayBeTogether(together) {
		each, together = append(each, together...), nil
	}
	if err := s.askEach(ctx, each, false); err != nil {
		return err
	}
	if len(together) == 0 {
		return nil
	}
	if !s.isDenied(all) {
		return s.askTogether(ctx, together)
	}
	if err := s.askEach(ctx, together, true); err != nil {
		return err
	}
	for _, other := range together {
		d := &other.decision
		d.Allowed = false
		if other.heldBack = d.Remaining >= other.cost(); !other.heldBack && d.RetryAfter == 0 {
			d.RetryAfter = d.ResetAfter // a peek does not say when all of the cost would be free
		}
	}
	return nil
}

// isDenied reports whether the descriptors that have been decided deny the request: one that is enforced is over its
// limit, or all quotas are.
func (s *Service) isDenied(all []asked) bool {
	quotas, over := 0, 0
	for i := range all {
		a := &all[i]
		if a.limit == nil {
			continue
		}
		denied := s.denied(a)
		if denied && s.isEnforced(a) {
			return true
		}
		if a.limit.Quota {
			quotas++
			if denied && !a.limit.Shadow {
				over++
			}
		}
	}
	return quotas > 0 && quotas == over
}

// fits reports whether the limit could ever grant the descriptor's hits.
func (s *Service) fits(a *asked) bool {
	if !a.limit.Terms.Counted {
		return true
	}
	return a.rule != nil && a.cost() <= a.rule.Algorithm().Capacity(a.rule.Limit())
}

// isEnforced reports whether the request is denied if the descriptor is over its limit.
func (s *Service) isEnforced(a *asked) bool {
	return !a.limit.Shadow && !a.limit.Quota && !s.options.ShadowMode && !s.options.QuotaMode
}

// denied reports whether the descriptor is over its limit, as far as it has been decided.
func (s *Service) denied(a *asked) bool {
	switch {
	case a.heldBack:
		return false
	case !a.limit.Terms.Counted:
		return a.asked && a.isAbove()
	case !a.charges():
		return a.limit.Terms.Debt && (a.rule == nil || a.asked && !a.decision.Allowed)
	case !a.asked:
		return !s.fits(a)
	}
	return !a.decision.Allowed
}

// isAbove reports whether a decided descriptor is over a limit that counts denied requests too. If it only looks or
// gives back hits, the count alone decides.
func (a *asked) isAbove() bool {
	d, quota := &a.decision, a.limit.RequestsPerUnit()
	switch d.Tier {
	case limit.TierRedis:
		return d.Used > quota
	case limit.TierLocal:
		return true
	}
	return a.cost() > 0 && !a.negative && (!d.Allowed || quota == 0)
}

func (a *asked) ask(ctx context.Context) (err error) {
	a.asked = true
	a.decision, err = a.rule.AllowN(ctx, a.key, a.cost())
	return err
}

// askEach decides each descriptor on its own, or only looks at the counts. If there are two Redis, it asks both at
// the same time, so that a slow one takes no time from the limits of the other.
func (s *Service) askEach(ctx context.Context, some []*asked, look bool) error {
	if s.limiters.PerSecond == nil {
		return askAt(ctx, s.limiters.All, some, look)
	}
	var others, perSecond []*asked
	for _, a := range some {
		if s.limiters.of(a.limit.Window) == s.limiters.PerSecond {
			perSecond = append(perSecond, a)
		} else {
			others = append(others, a)
		}
	}
	switch {
	case len(perSecond) == 0:
		return askAt(ctx, s.limiters.All, others, look)
	case len(others) == 0:
		return askAt(ctx, s.limiters.PerSecond, perSecond, look)
	}
	var atOnce sync.WaitGroup
	var perSecondErr error
	atOnce.Go(func() { perSecondErr = askAt(ctx, s.limiters.PerSecond, perSecond, look) })
	err := askAt(ctx, s.limiters.All, others, look)
	atOnce.Wait()
	return errors.Join(err, perSecondErr)
}

// askAt is askEach for descriptors on one limiter. It makes a trip for every MaxTogether of them.
func askAt(ctx context.Context, limiter *tiered.Limiter, some []*asked, look bool) error {
	requests := make([]tiered.Request, 0, min(len(some), tiered.MaxTogether))
	for part := range slices.Chunk(some, tiered.MaxTogether) {
		requests = requests[:0]
		for _, a := range part {
			q := tiered.Request{Rule: a.rule, Key: a.key, Cost: a.cost()}
			if look || a.negative {
				q.Cost = 0
			}
			requests = append(requests, q)
		}
		decisions, err := limiter.AllowEach(ctx, requests...)
		if err != nil {
			return err
		}
		for i, a := range part {
			a.decision, a.asked = decisions[i], true
		}
	}
	return nil
}

// mayBeTogether reports whether the descriptors can be charged all or none: there are at most MaxTogether of them,
// and no two share a count.
func mayBeTogether(some []*asked) bool {
	if len(some) > tiered.MaxTogether {
		return false
	}
	type count struct {
		window time.Duration
		key    string
	}
	seen := make(map[count]bool, len(some))
	for _, a := range some {
		c := count{a.limit.Window, a.key}
		if seen[c] {
			return false
		}
		seen[c] = true
	}
	return true
}

// askTogether charges all or none of the descriptors, if one limiter holds them all.
func (s *Service) askTogether(ctx context.Context, some []*asked) error {
	if len(some) == 1 {
		return some[0].ask(ctx)
	}
	limiter := s.limiters.of(some[0].limit.Window)
	requests := make([]tiered.Request, len(some))
	for i, a := range some {
		if s.limiters.of(a.limit.Window) != limiter {
			return s.askEach(ctx, some, false) // no transaction can span two Redis
		}
		requests[i] = tiered.Request{Rule: a.rule, Key: a.key, Cost: a.cost()}
	}
	decisions, err := limiter.AllowAll(ctx, requests...)
	if errors.Is(err, limit.ErrInvalidCost) { // their logs would write more than one trip may, and nothing was charged
		return s.askEach(ctx, some, false)
	}
	if err != nil {
		return err
	}
	for i, a := range some {
		a.decision, a.asked = decisions[i], true
		a.heldBack = a.decision.HeldBack
	}
	return nil
}

// doAll does the same for all of the descriptors. Up to MaxTogether of them, as many as a trip carries, run
// concurrently and share trips.
func doAll(some []*asked, do func(*asked)) {
	for part := range slices.Chunk(some, tiered.MaxTogether) {
		var atOnce sync.WaitGroup
		for _, a := range part[1:] {
			atOnce.Go(func() { do(a) })
		}
		do(part[0])
		atOnce.Wait()
	}
}

// chargeDebts charges hits that were used already and were denied because they did not fit.
func (s *Service) chargeDebts(ctx context.Context, all []asked) {
	var used []*asked
	for i := range all {
		if a := &all[i]; a.limit != nil && a.limit.Terms.Debt && a.charges() && a.rule != nil && s.denied(a) {
			used = append(used, a)
		}
	}
	doAll(used, func(a *asked) {
		_ = a.rule.ChargeUsed(ctx, a.key, a.cost()) // fails only if the service has ended
	})
}

// clockOf returns how far the clock of a window's Redis is ahead, in microseconds.
func (s *Service) clockOf(window time.Duration) *atomic.Int64 {
	if s.limiters.of(window) == s.limiters.PerSecond {
		return &s.ahead[1]
	}
	return &s.ahead[0]
}

// compareClocks compares the times of charges, which are Redis's, with this instance's clock.
func (s *Service) compareClocks(all []asked) {
	now := s.options.Now().UnixMicro()
	for i := range all {
		a := &all[i]
		if !a.asked || a.negative || a.decision.Tier != limit.TierRedis || a.decision.ChargedAt == 0 {
			continue
		}
		clock, ahead := s.clockOf(a.limit.Window), a.decision.ChargedAt-now
		if was := clock.Load(); ahead < was-clocksAgree || ahead > was+clocksAgree {
			clock.Store(ahead)
		}
	}
}

// clocksAgree is how many microseconds two clocks may differ, since a trip takes time as well.
const clocksAgree = 20_000

// giveBack subtracts hits from the count, which stops at 0. Under a sliding counter and GCRA, units belong to the
// charge that took them, so giveBack does nothing.
func (s *Service) giveBack(ctx context.Context, a *asked) {
	window := a.limit.Window
	now := s.options.Now().Add(time.Duration(s.clockOf(window).Load()) * time.Microsecond)
	var charged time.Time
	switch algorithm := a.rule.Algorithm(); {
	case algorithm.Same(limit.FixedWindow()):
		charged = now.Add(-time.Duration(now.UnixNano()) % window)
	case algorithm.Same(limit.SlidingLog()):
		charged = now.Add(-window + window/16) // gives back the oldest hits that still count
	default:
		return
	}
	units := a.cost()
	charge := limit.Decision{Granted: units, ChargedAt: charged.UnixMicro()}
	if s.limiters.of(window).Degraded() {
		charge.ChargedAt = 0 // the refund comes out of this instance's own grants
	}
	// Hits that cannot be given back stay charged, and leave with their window.
	_ = a.rule.Refund(ctx, a.key, &charge, units)
}
