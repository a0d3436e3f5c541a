// Package model holds plain reference models of the rate limiting algorithms, one file per algorithm. The scripts
// in Redis are tested against them, field by field. So the models are written to be obviously right rather than
// fast or small.
//
// All times are whole microseconds since the Unix epoch, not negative; all
// waits are whole microseconds. A model is not safe for concurrent use.
package model

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/tierlimit/tierlimit/limit"
)

// Outcome is a model's answer to one request.
type Outcome struct {
	// Allowed says whether the cost was granted, and so charged.
	Allowed bool

	// Granted is the number of units charged, or given back by a refund.
	Granted int64

	// Remaining is how many units the next request could be granted right after this one. It is never negative.
	Remaining int64

	// RetryAfter is the smallest wait after which the same cost would be granted
	// if nothing else happened; 0 when Allowed.
	RetryAfter int64

	// NextAfter is the smallest wait after which a cost of 1 would be granted;
	// 0 when Allowed and when Remaining is not 0.
	NextAfter int64

	// ResetAfter is the smallest wait after which the key grants as much as if it had never been used; 0 if it
	// already does.
	ResetAfter int64

	// Stamp is the key's own time, by which a refund finds the charge.
	Stamp int64

	// Life is how long a lease or hold lasts; 0 in other outcomes.
	Life int64
}

// Model is one key under one limit.
type Model interface {
	// Decide grants or denies cost at the time now. The cost must be between 1 and the algorithm's capacity. Any
	// other cost is denied, with RetryAfter and NextAfter 0, because no wait would help.
	Decide(now, cost int64) Outcome

	// TakeUpTo grants as much of cost as fits, and charges exactly that much. It is denied if no unit fits; the
	// waits are then those of a single unit.
	TakeUpTo(now, cost int64) Outcome

	// Peek answers as Decide would, but charges nothing.
	Peek(now, cost int64) Outcome

	// Refund gives back units of a charge that was made at stamp and had a cost of charged, as far as they still
	// count.
	Refund(now, stamp, charged, units int64) Outcome

	// Forget makes the key as if it had never been used. It also forgets the holds, but not the leases.
	Forget(now int64) Outcome

	// Lease charges up to wanted units in advance.
	Lease(now, wanted int64, terms Terms) Outcome
	// Charge charges units of the past as if they had been charged then, however many are free. It does nothing if
	// marker, an instance, has already come with that sequence or a larger one. Granted is the number of units that
	// still count.
	Charge(now int64, marker string, sequence int64, past []Past) Outcome

	// Hold charges a cost, or with upTo as much of it as fits, for work whose cost is known only when it is over.
	// It is also denied if too many holds are open.
	Hold(now, cost int64, upTo bool, terms HoldTerms) Outcome
	// Settle corrects the charge for a hold to the units used, and ends the hold. Unused units are given back as if
	// they had never been charged; additional units are charged now, however many are free. Granted is the number
	// of either. If the hold does not exist, nothing changes, and the outcome is not Allowed; but the ID 0 stands
	// for a hold of no units.
	Settle(now, used int64, id uint64) Outcome
	// Extend makes a hold last for its life from now on.
	Extend(now int64, terms HoldTerms) Outcome
	// GiveBack gives back the units of holds that have ended by now and are to be given back at their end. It is
	// called before each other operation of a rule that gives back, except Settle and Extend.
	GiveBack(now int64)

	// Use changes the limit and the algorithm. Units that were charged continue to count. Under another limit of
	// the same algorithm they count as they are, where that is possible (a counter's sub-windows must be the same).
	// Otherwise each unit counts from the latest time at which it can have been charged. A denial changes nothing,
	// so if the rule is changed back before the next charge, nothing has happened.
	Use(l limit.Limit, a limit.Algorithm) error

	// Clone returns an independent copy, for questions that must not change the original.
	Clone() Model
}

// Past is a number of units of the past, and how long ago they were granted.
type Past struct{ Units, Age int64 }

// New returns the model of an unused key under limit l, counted by a. The error wraps [limit.ErrInvalidLimit] or
// [limit.ErrInvalidAlgorithm]. Automatic is invalid here, since a model does not choose, and so are limits that a
// cannot enforce. A limit of [limit.Concurrent] has another model, see [Slots].
func New(l limit.Limit, a limit.Algorithm) (Model, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	if err := a.Validate(); err != nil {
		return nil, err
	}
	if l.IsConcurrent() || l.IsCalendar() && a != limit.FixedWindow() {
		return nil, fmt.Errorf("%w: %v cannot count the limit %v", limit.ErrInvalidAlgorithm, a, l)
	}
	units, err := newTally(a, l)
	if err != nil {
		return nil, err
	}
	return &key{limit: l, algorithm: a, units: units, sequences: make(map[string]int64)}, nil
}

// tally has the units of a key as one algorithm counts them. It knows nothing of clocks that go back: it is never
// asked about a time before its last charge.
type tally interface {
	// free returns how many units could be charged at t.
	free(t int64) int64
	// charge adds cost units at t, at most free(t).
	charge(t, cost int64)
	// chargePast adds units as if they had been charged before t; the youngest come first. It returns how many of
	// them still count, and whether anything changed.
	chargePast(t int64, past []Past) (charged int64, changed bool)
	// refund takes back up to units of a charge that was made at stamp and had a cost of charged. It returns how
	// many, and whether anything changed. For a log, a cost of 0 undoes the charge.
	refund(t, stamp, charged, units int64) (given int64, changed bool)
	// past returns the units charged up to the key's newest charge, the newest first, each at the latest time at
	// which it can have been charged. Another algorithm asks for no more than the newest most units, and for none
	// that is as old as longest.
	past(newest, longest, most int64) []logEntry
	// wait returns the smallest w >= 0 such that free(t+w) >= cost.
	wait(t, cost int64) int64
	// reset returns the smallest w >= 0 such that no charged unit counts at t+w.
	reset(t int64) int64
	clone() tally
}

func newTally(a limit.Algorithm, l limit.Limit) (tally, error) {
	quota, window, burst := l.Quota(), l.Window().Microseconds(), l.Burst()
	switch {
	case a.Same(limit.SlidingLog()):
		log := newSlidingLog(quota, window)
		log.zset = a == limit.SlidingLogZSet()
		return log, nil
	case a.Same(limit.SlidingCounter(1, limit.Strict)):
		return newSlidingCounter(quota, window, int64(a.Buckets()), a.Rounding()), nil
	case a.Same(limit.GCRA()):
		return newGCRA(quota, window, burst), nil
	case a.Same(limit.FixedWindow()):
		return &fixedWindow{limit: l}, nil
	}
	return nil, fmt.Errorf("%w: there is no model of %q", limit.ErrInvalidAlgorithm, a)
}

// maxLimits is the largest multiple of a limit to which charges of the past may fill a key.
const maxLimits = 4

// room returns how many units of the past may be added to the units held.
func room(quota, held int64) int64 { return max(0, maxLimits*quota-held) }

// key combines a tally with the key's own clock. This part is the same for all algorithms.
type key struct {
	clock     clock
	limit     limit.Limit // the rule in force
	algorithm limit.Algorithm
	units     tally // after the last charge, under the rule then in force
	leases    []lease
	holds     []hold

	sequences map[string]int64 // of the last charge of the past, by marker
}

func (k *key) Decide(now, cost int64) Outcome {
	return k.decide(now, cost, func(free int64) int64 { return cost }, true)
}

func (k *key) TakeUpTo(now, cost int64) Outcome {
	return k.decide(now, 1, func(free int64) int64 { return min(cost, free) }, true)
}

func (k *key) Peek(now, cost int64) Outcome {
	return k.decide(now, cost, func(free int64) int64 { return 0 }, false)
}

// decide grants the request if at least needed units are free, and then charges the number of units that charge
// computes from the number of free ones.
func (k *key) decide(now, needed int64, charge func(free int64) int64, commit bool) Outcome {
	t := k.clock.read(now)
	units := k.current()
	free := units.free(t)
	out := Outcome{Allowed: needed >= 1 && needed <= free, Stamp: t}
	switch {
	case out.Allowed && commit:
		out.Granted = charge(free)
		units.charge(t, out.Granted)
		k.charged(units, t)
		free = units.free(t)
	case !out.Allowed && needed >= 1 && needed <= k.algorithm.Capacity(k.limit):
		out.RetryAfter = units.wait(t, needed)
		out.NextAfter = units.wait(t, 1)
	}
	out.Remaining = free
	out.ResetAfter = units.reset(t)
	return out
}

func (k *key) Refund(now, stamp, charged, amount int64) Outcome {
	t := k.clock.read(now)
	units, changed := k.current(), false
	out := Outcome{Allowed: true}
	if k.clock.used && stamp <= k.clock.newest { // otherwise the key no longer knows the charge
		out.Granted, changed = units.refund(t, stamp, charged, amount)
	}
	if changed {
		k.give(units)
	}
	return k.withState(now, out)
}

func (k *key) Charge(now int64, marker string, sequence int64, past []Past) Outcome {
	t := k.clock.read(now)
	units, changed := k.current(), false
	out := Outcome{Allowed: true}
	if sequence > k.sequences[marker] {
		k.sequences[marker] = sequence
		past = slices.Clone(past)
		slices.SortStableFunc(past, func(a, b Past) int { return cmp.Compare(a.Age, b.Age) })
		if out.Granted, changed = units.chargePast(t, past); changed {
			k.charged(units, t)
		}
	}
	return k.withState(now, out)
}

// charged stores the units after a charge at t.
func (k *key) charged(units tally, t int64) {
	k.units = units
	k.clock.charged(t)
}

func (k *key) Forget(now int64) Outcome {
	k.vanish()
	k.holds = nil
	return Outcome{Allowed: true, Remaining: k.units.free(now), Stamp: now}
}

// vanish makes the key as if it had never had any units.
func (k *key) vanish() {
	k.clock = clock{}
	k.units, _ = newTally(k.algorithm, k.limit)
}

func (k *key) Use(l limit.Limit, a limit.Algorithm) error {
	if _, err := New(l, a); err != nil {
		return err
	}
	k.limit, k.algorithm = l, a
	return nil
}

func (k *key) Clone() Model {
	c := *k
	c.units = k.units.clone()
	c.leases = slices.Clone(k.leases)
	c.holds = slices.Clone(k.holds)
	c.sequences = maps.Clone(k.sequences)
	return &c
}
