package model

import (
	"math"
	"slices"

	"github.com/tierlimit/tierlimit/limit"
)

// current returns a copy of the key's units, counted under the rule in force.
func (k *key) current() tally {
	quota, window, burst := k.limit.Quota(), k.limit.Window().Microseconds(), k.limit.Burst()
	fresh, _ := newTally(k.algorithm, k.limit) // Use has checked that there is no error
	if !k.clock.used {
		return fresh
	}
	most := maxLimits * quota
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
		most = quota + burst - 1 // with this many a unit fits one window later
	}
	longest := int64(math.MaxInt64)
	if !k.limit.IsCalendar() {
		longest = window
	}
	log, toLog := fresh.(*slidingLog)
	if toLog {
		most = min(most, log.largest())
	}
	past := newest(k.units.past(k.clock.newest, longest, most), most)
	if _, isLog := k.units.(*slidingLog); isLog && k.algorithm.Buckets() == 0 {
		past = inGroups(past)
	}
	if toLog {
		log.keep = max(quota, most) // no inherited unit is pushed out
	}
	for _, e := range slices.Backward(past) {
		if k.clock.newest-e.stamp < longest || k.algorithm.Buckets() > 0 { // counters go by buckets
			fresh.charge(e.stamp, e.units)
		}
	}
	if toLog {
		log.keep = max(quota, log.held())
	}
	if f, ok := fresh.(*fixedWindow); ok {
		f.belongTo(k.clock.newest)
	}
	return fresh
}

// newest returns the newest "most" units, the newest first.
func newest(past []logEntry, most int64) (some []logEntry) {
	for _, e := range past {
		if e.units = min(e.units, most); e.units > 0 {
			some = append(some, e)
		}
		most -= e.units
	}
	return some
}

// inGroups returns the units in groups of the same size, each at the time of its youngest unit.
func inGroups(past []logEntry) (groups []logEntry) {
	units := int64(0)
	for _, e := range past {
		units += e.units
	}
	size, left := groupSize(units), int64(0) // left is the room in the last group
	for _, e := range past {
		for e.units > 0 {
			if left == 0 {
				groups, left = append(groups, logEntry{stamp: e.stamp}), size
			}
			some := min(left, e.units)
			groups[len(groups)-1].units += some
			e.units, left = e.units-some, left-some
		}
	}
	return groups
}

// groupSize returns the size of the groups, of which there are at most 64.
func groupSize(units int64) int64 { return max(1, ceilDiv(units, 64)) }

// held returns how many units a tally holds, whether or not they still count at t.
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
