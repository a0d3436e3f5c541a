package model

import (
	"math"

	"github.com/tierlimit/tierlimit/limit"
)

// current is a copy of what the key holds, counted at t under the rule in force.
func (k *key) current(t int64) tally {
	quota, window, burst := k.limit.Quota(), k.limit.Window().Microseconds(), k.limit.Burst()
	fresh, _ := newTally(k.algorithm, k.limit) // Use has checked it
	if !k.clock.used {
		return fresh
	}
	most := quota
	switch old := k.units.(type) {
	case *slidingLog:
		if log, ok := fresh.(*slidingLog); ok && log.zset == old.zset {
			return old.under(quota, window)
		}
	case *slidingCounter:
		if c, ok := fresh.(*slidingCounter); ok {
			if c.k == old.k && c.window == old.window {
				c.buckets = old.clone().(*slidingCounter).buckets
				return c
			}
			most = math.MaxInt64
		}
	case *gcra:
		if k.algorithm.Same(limit.GCRA()) {
			return old.under(k.clock.newest, quota, window, burst)
		}
	case *fixedWindow:
		if f, ok := fresh.(*fixedWindow); ok {
			f.newest, f.units = old.newest, old.units
			return f
		}
	}
	if k.algorithm.Same(limit.GCRA()) {
		most = quota + burst - 1 // a window later a unit fits
	}
	longest := int64(math.MaxInt64)
	if !k.limit.IsCalendar() {
		longest = window
	}
	recharge(fresh, k.units.past(k.clock.newest, longest), k.clock.newest, longest, most)
	if f, ok := fresh.(*fixedWindow); ok {
		f.belongTo(k.clock.newest)
	}
	return fresh
}

// past is what a tally knows of the units charged up to a key's newest charge.
type past struct {
	units int64
	// at returns the latest time at which the i-th newest unit, counted from 0, can have been
	// charged.
	at func(i int64) int64
}

// mostGroups is how many groups recharge makes of all units.
const mostGroups = 64

// recharge charges units of the past, and at most the newest "most" of them: in groups of the same
// size, each at the time of its youngest unit. Groups that are as old as longest at the newest charge
// are left out.
func recharge(to tally, p past, newest, longest, most int64) {
	n := min(most, p.units)
	size := max(1, ceilDiv(n, mostGroups))
	for group := ceilDiv(n, size) - 1; group >= 0; group-- {
		if stamp := p.at(group * size); newest-stamp < longest {
			to.charge(stamp, min(size, n-group*size))
		}
	}
}

// held is how many units a tally holds, whether or not they still count at t.
func held(units tally, t int64) int64 {
	switch u := units.(type) {
	case *slidingLog:
		return u.held()
	case *slidingCounter:
		return u.held()
	case *fixedWindow:
		return u.held()
	case *gcra:
		return u.owed(t)
	}
	return 0
}

// empty reports whether a tally holds nothing that counts at the last charge.
func empty(units tally, newest int64) bool { return held(units, newest) == 0 }
