package model

import (
	"math"
	"slices"
	"sort"
)

// slidingLog remembers the time of every unit. A unit counts while it is less
// than a window old.
type slidingLog struct {
	quota, window int64

	// entries are the times of charges, oldest first, each with the number of
	// units charged until then. The first entry does not count any more: it says
	// how many units were charged before the ones that may count.
	entries []logEntry
}

type logEntry struct {
	stamp int64
	total int64 // units charged up to and at stamp, since the log began
}

func newSlidingLog(quota, window int64) *slidingLog {
	return &slidingLog{quota: quota, window: window, entries: []logEntry{{stamp: math.MinInt64}}}
}

// lastGone is the position of the newest entry that does not count at t.
func (l *slidingLog) lastGone(t int64) int {
	live := sort.Search(len(l.entries), func(i int) bool { return l.entries[i].stamp > t-l.window })
	return live - 1
}

func (l *slidingLog) last() *logEntry { return &l.entries[len(l.entries)-1] }

func (l *slidingLog) free(t int64) int64 {
	used := l.last().total - l.entries[l.lastGone(t)].total
	return l.quota - used
}

func (l *slidingLog) charge(t, cost int64) {
	// No later question is about a time before t, so what is gone by t is gone
	// for good. That does not hold at a denial: the clock may go back from there
	// as far as the last charge.
	l.entries = l.entries[l.lastGone(t):]
	if l.last().stamp == t {
		l.last().total += cost
		return
	}
	l.entries = append(l.entries, logEntry{stamp: t, total: l.last().total + cost})
}

func (l *slidingLog) wait(t, cost int64) int64 {
	// The cost fits once all but quota-cost of the units have left.
	mustLeave := l.last().total - (l.quota - cost)
	i := sort.Search(len(l.entries), func(i int) bool { return l.entries[i].total >= mustLeave })
	if i <= l.lastGone(t) {
		return 0
	}
	return l.entries[i].stamp + l.window - t
}

func (l *slidingLog) reset(t int64) int64 {
	if l.lastGone(t) == len(l.entries)-1 {
		return 0
	}
	return l.last().stamp + l.window - t
}

func (l *slidingLog) clone() tally {
	c := *l
	c.entries = slices.Clone(l.entries)
	return &c
}
