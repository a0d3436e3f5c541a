package model

import (
	"cmp"
	"slices"
)

// slidingLog remembers the time of every unit. A unit counts while it is less
// than a window old.
type slidingLog struct {
	quota, window int64
	zset          bool // stored as a sorted set: counts as another algorithm when rules change

	// entries are the units held, oldest first.
	entries []logEntry

	// Several versions of a limit may use the same log. It holds the units that the longest window and the largest
	// quota among the versions that charged need.
	longest, keep int64
}

type logEntry struct{ stamp, units int64 }

func newSlidingLog(quota, window int64) *slidingLog {
	return &slidingLog{quota: quota, window: window, longest: window, keep: quota}
}

// under returns the same log under another limit.
func (l *slidingLog) under(quota, window int64) *slidingLog {
	c := l.clone().(*slidingLog)
	c.quota, c.window = quota, window
	c.longest, c.keep = max(c.longest, window), max(c.keep, quota)
	return c
}

// after returns how many of the units held are younger than stamp.
func (l *slidingLog) after(stamp int64) (units int64) {
	for _, e := range l.entries {
		if e.stamp > stamp {
			units += e.units
		}
	}
	return units
}

func (l *slidingLog) free(t int64) int64 { return max(0, l.quota-l.after(t-l.window)) }

func (l *slidingLog) charge(t, cost int64) {
	l.entries = append(l.entries, logEntry{stamp: t, units: cost})
	l.forget(t)
}

// forget drops units that no limit needs after a charge at t. No later question is about a time before t, so a unit
// that has left by t has left for good. That is not so at a denial or a refund: the clock may then go back as far
// as the last charge.
func (l *slidingLog) forget(t int64) {
	l.entries = slices.DeleteFunc(l.entries, func(e logEntry) bool { return e.stamp <= t-l.longest })
	l.drop(0, l.held()-l.keep)
}

// chargePast puts units where they would be if they had been charged at their times.
func (l *slidingLog) chargePast(t int64, past []Past) (charged int64, changed bool) {
	live := l.after(t - l.window)
	for _, p := range past {
		if p.Age < l.longest {
			l.entries = append(l.entries, logEntry{stamp: t - p.Age, units: p.Units})
			charged += p.Units
		}
	}
	if charged == 0 {
		return 0, false
	}
	l.keep = max(l.keep, min(l.largest(), maxLimits*l.quota, live+charged))
	slices.SortStableFunc(l.entries, func(a, b logEntry) int { return cmp.Compare(a.stamp, b.stamp) })
	l.forget(t)
	return charged, true
}

// drop removes up to n units, the oldest first, from the i-th entry on. It returns how many it removed.
func (l *slidingLog) drop(i int, n int64) (dropped int64) {
	for dropped < n && i < len(l.entries) {
		e := &l.entries[i]
		some := min(n-dropped, e.units)
		dropped += some
		e.units -= some
		if e.units == 0 {
			l.entries = slices.Delete(l.entries, i, i+1)
		}
	}
	return dropped
}

// refund removes the oldest units that count, and not those of the charge itself. So the remaining units leave no
// earlier than they should. A charge of 0 is undone.
func (l *slidingLog) refund(t, stamp, charged, units int64) (given int64, changed bool) {
	if charged == 0 {
		return l.release(t, stamp, units)
	}
	if stamp <= t-l.window {
		return 0, false
	}
	first := slices.IndexFunc(l.entries, func(e logEntry) bool { return e.stamp > t-l.window })
	if first < 0 {
		return 0, false
	}
	given = l.drop(first, units)
	return given, given > 0
}

// release removes units of the charge made at stamp. Refunds remove the oldest units, which may have been these: then
// units of the refunded charges still count in their place, and release removes the oldest as well.
func (l *slidingLog) release(t, stamp, units int64) (given int64, changed bool) {
	if stamp <= t-l.window {
		return 0, false
	}
	for i := 0; i < len(l.entries); i++ {
		if e := &l.entries[i]; e.stamp == stamp {
			some := min(units-given, e.units)
			e.units -= some
			given += some
		}
	}
	l.entries = slices.DeleteFunc(l.entries, func(e logEntry) bool { return e.units == 0 })
	if first := slices.IndexFunc(l.entries, func(e logEntry) bool { return e.stamp > t-l.window }); first >= 0 {
		given += l.drop(first, units-given)
	}
	return given, given > 0
}

// largest returns the largest number of units that a log holds.
func (l *slidingLog) largest() int64 {
	if l.zset {
		return 5000
	}
	return 100_000
}

func (l *slidingLog) wait(t, cost int64) int64 {
	if l.free(t) >= cost {
		return 0
	}
	// The cost fits once all but quota-cost of the units have left.
	mustLeave := l.after(t-l.window) - (l.quota - cost)
	for _, e := range l.entries {
		if e.stamp <= t-l.window {
			continue
		}
		if mustLeave -= e.units; mustLeave <= 0 {
			return e.stamp + l.window - t
		}
	}
	return 0
}

func (l *slidingLog) reset(t int64) int64 {
	if l.after(t-l.window) == 0 {
		return 0
	}
	return l.entries[len(l.entries)-1].stamp + l.window - t
}

func (l *slidingLog) held() int64 { return l.after(-1 << 62) }

// past returns each unit at its own time.
func (l *slidingLog) past(_, _, _ int64) []logEntry {
	past := slices.Clone(l.entries)
	slices.Reverse(past)
	return past
}

func (l *slidingLog) clone() tally {
	c := *l
	c.entries = slices.Clone(l.entries)
	return &c
}
