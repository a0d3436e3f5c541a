package model

import "github.com/tierlimit/tierlimit/limit"

// current is a copy of what the key holds, counted at t under the rule in force.
func (k *key) current(t int64) tally {
	quota, window, burst := k.limit.Quota(), k.limit.Window().Microseconds(), k.limit.Burst()
	fresh, _ := newTally(k.algorithm, k.limit) // Use has checked it
	if !k.clock.used {
		return fresh
	}
	switch old := k.units.(type) {
	case *slidingLog:
		if log, ok := fresh.(*slidingLog); ok && log.zset == old.zset {
			return old.under(quota, window)
		}
	case *slidingCounter:
		if c, ok := fresh.(*slidingCounter); ok {
			if c.k == old.k && c.window == old.window {
				c.buckets = old.clone().(*slidingCounter).buckets
			} else {
				chargeAt(c, k.clock.newest, old.held())
			}
			return c
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
	if old, ok := k.units.(*gcra); ok {
		longest := old.window
		if !k.limit.IsCalendar() {
			longest = min(longest, window)
		}
		old.recharge(fresh, k.clock.newest, longest, quota)
		if f, ok := fresh.(*fixedWindow); ok {
			f.belongTo(k.clock.newest)
		}
		return fresh
	}
	most := quota
	if k.algorithm.Same(limit.GCRA()) {
		most = quota + burst - 1 // a window later a unit fits
	}
	chargeAt(fresh, k.clock.newest, min(most, held(k.units, t)))
	return fresh
}

func chargeAt(units tally, t, n int64) {
	if n > 0 {
		units.charge(t, n)
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
