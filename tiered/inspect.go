package tiered

import (
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"github.com/tierlimit/tierlimit/internal/inspect"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
	"github.com/tierlimit/tierlimit/plan"
)

func init() {
	inspect.Of = func(limiter any) inspect.Inside { return inside{limiter.(*Limiter)} }
}

// inside lets the live page inspect a limiter. It uses the same counters as the metrics, so nothing
// is counted twice.
type inside struct{ l *Limiter }

func (i inside) Owns(rule any) bool { return i.l.owns(rule.(*Rule)) }

func (i inside) Context() context.Context { return i.l.ctx }

func (i inside) AfterClose(f func()) { i.l.afterClose = f }

func (i inside) Snapshot() inspect.Snapshot {
	l := i.l
	shown := inspect.Snapshot{
		At:                time.Now(),
		State:             l.State().String(),
		Breaker:           l.shards.BreakerState().String(),
		FleetSize:         l.FleetSize(),
		FleetHeard:        l.shards.Heard(),
		RememberedDenials: l.denials.Len(),
		Prefix:            l.config.prefix,
		Deadline:          l.config.deadline,
		Health:            l.health(),
	}
	if err := l.shards.Reason(); err != nil {
		shown.Reason = err.Error()
	}
	shown.Allowed, shown.Denied = l.metrics.total()
	slots := l.slots.table.Counts()
	l.mu.Lock()
	for _, name := range slices.Sorted(maps.Keys(l.rules)) {
		r := l.rules[name]
		rule := r.inspected()
		rule.Held = r.inspectedHeld(slots[r.name])
		shown.Rules = append(shown.Rules, rule)
	}
	l.mu.Unlock()
	return shown
}

// inspectedHeld returns the units that are held under the rule's name.
func (r *Rule) inspectedHeld(slots local.SlotCounts) inspect.Held {
	var holds HoldStats
	holds.add(&r.counters.holds)
	return inspect.Held{
		Units: slots.Units + holds.Units, Open: holds.Open, Settled: holds.Settled,
		Waiting: holds.Unsettled, Reclaimed: holds.Reclaimed, LostHolds: holds.Lost,
		LostSlots: slots.Lost,
	}
}

func (r *Rule) inspected() inspect.Rule {
	enforced := *r // a rule on a dry run allows everything, mistakes included
	enforced.config.dryRun = false
	shown := inspect.Rule{
		Name:         r.name,
		Limit:        r.given,
		Algorithm:    plan.Candidate{Limit: r.limit, Algorithm: r.algorithm}.String(),
		Capacity:     r.capacity,
		WorstCase:    r.WorstCase(),
		Why:          r.why,
		OutagePolicy: r.config.policy.String(),
		DryRun:       r.config.dryRun,
		Peek:         enforced.Peek,
		Reset:        r.Reset,
		OwnLimit: func(key string) (l limit.Limit, ok bool) {
			if own := r.limiter.ownLimits.Load(); own != nil {
				l, ok = own.of(r.name, key)
			}
			return l, ok
		},
		WithLimit: func(l limit.Limit) (inspect.Rule, error) {
			other, err := r.limiter.describedRule(r.name, l, r.config)
			if err != nil {
				return inspect.Rule{}, fmt.Errorf("rule %q: %w", r.name, err)
			}
			return other.inspected(), nil
		},
	}
	if r.config.dryRun {
		shown.Why = "On a dry run: requests counted as denied were allowed. " + shown.Why
	}
	shown.Errors = r.counters.failed.stats().Total()
	for _, tier := range r.limiter.metrics.decided(r.counters) {
		shown.Counts = append(shown.Counts, inspect.Count(tier))
	}
	return shown
}

func (i inside) Watch(f inspect.Watcher) (stop func(), ok bool) {
	if !i.l.watcher.CompareAndSwap(nil, &f) {
		return nil, false
	}
	return func() { i.l.watcher.CompareAndSwap(&f, nil) }, true
}

func (i inside) RememberOwnLimits() {
	i.l.ownLimits.CompareAndSwap(nil, &ownLimits{seed: maphash.MakeSeed()})
}

func (l *Limiter) health() (h inspect.Health) {
	for _, s := range l.shards.InUse() {
		m := inspect.Master{Address: s.Address(), State: s.State().String(), Since: s.Since()}
		if at, err := s.LastFailure(); err != nil {
			m.LastError, m.LastErrorAt = err.Error(), at
		}
		h.Masters = append(h.Masters, m)
	}
	units, keys := l.ledger.Waiting()
	h.WaitingUnits, h.WaitingKeys = units, int64(keys)
	trips := l.metrics.trips.stats()
	h.TripBounds, h.TripCounts = trips.Bounds, trips.Counts
	return h
}
