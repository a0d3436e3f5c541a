package main

import (
	"math"
	"slices"
	"sort"
)

// state is one key in Redis, in virtual time (µs). used is what a reply tells: the
// limit less what remains.
type state interface {
	used(now int64) int64
	free(now int64) int64
	wait(now int64) int64 // until a unit is free
	take(now int64)
	// charge counts units granted at a time that has passed, without asking whether
	// they fit.
	charge(now, stamp, units int64)
	clear()
}

// slidingLog is the exact log: the newest quota stamps, in order.
type slidingLog struct {
	quota, window int64
	stamps        []int64
}

func (l *slidingLog) used(now int64) int64 {
	first := sort.Search(len(l.stamps), func(i int) bool { return l.stamps[i] > now-l.window })
	return int64(len(l.stamps) - first)
}

func (l *slidingLog) free(now int64) int64 { return max(0, l.quota-l.used(now)) }
func (l *slidingLog) take(now int64)       { l.charge(now, now, 1) }

func (l *slidingLog) wait(now int64) int64 {
	if l.free(now) > 0 {
		return 0
	}
	return l.stamps[int64(len(l.stamps))-l.quota] + l.window - now
}

func (l *slidingLog) clear() { l.stamps = nil }

// forget drops what was charged after t.
func (l *slidingLog) forget(t int64) {
	l.stamps = slices.DeleteFunc(l.stamps, func(stamp int64) bool { return stamp > t })
}

func (l *slidingLog) charge(now, stamp, units int64) {
	i := sort.Search(len(l.stamps), func(i int) bool { return l.stamps[i] > stamp })
	l.stamps = slices.Insert(l.stamps, i, slices.Repeat([]int64{stamp}, int(units))...)
	// More than a quota of them never matter: a unit fits when the quota-th newest has left.
	if surplus := len(l.stamps) - int(l.quota); surplus > 0 {
		l.stamps = l.stamps[surplus:]
	}
}

// slidingCounter is k sub-windows and the one that the window overlaps in part.
type slidingCounter struct {
	quota, window, k int64
	strict           bool
	counts           map[int64]int64
}

func (c *slidingCounter) used(now int64) (sum int64) {
	length := c.window / c.k
	current := now / length
	for i, n := range c.counts {
		switch {
		case i < current-c.k: // has left
		case i == current-c.k && !c.strict:
			sum += int64(math.Ceil(float64(n) * float64(length-now%length) / float64(length)))
		default:
			sum += n
		}
	}
	return sum
}

func (c *slidingCounter) free(now int64) int64 { return max(0, c.quota-c.used(now)) }
func (c *slidingCounter) take(now int64)       { c.charge(now, now, 1) }

// wait is a part of a sub-window at a time: near enough.
func (c *slidingCounter) wait(now int64) int64 {
	length, w := c.window/c.k, int64(0)
	for c.free(now+w) == 0 && w < length {
		w += length / 8
	}
	return w
}

func (c *slidingCounter) clear() { clear(c.counts) }
func (c *slidingCounter) charge(_, stamp, units int64) {
	c.counts[stamp/(c.window/c.k)] += units
}

// gcra is a theoretical arrival time.
type gcra struct {
	quota, window, burst int64
	tat                  float64
}

func (g *gcra) interval() float64 { return float64(g.window) / float64(g.quota) }

func (g *gcra) used(now int64) int64 {
	return int64(math.Ceil(max(0, g.tat-float64(now))/g.interval() - 1e-9))
}

func (g *gcra) free(now int64) int64 { return max(0, g.burst-g.used(now)) }
func (g *gcra) take(now int64)       { g.charge(now, now, 1) }

func (g *gcra) wait(now int64) int64 {
	return max(0, int64(g.tat-float64(now)-float64(g.burst-1)*g.interval()))
}

func (g *gcra) clear() { g.tat = 0 }

// charge replays the units as far as one number allows: debt that would have been
// paid off since the stamp, had the key had none, is not charged.
func (g *gcra) charge(now, stamp, units int64) {
	g.tat = max(g.tat, float64(stamp)) + float64(units)*g.interval()
}

// fixedWindow is one count, from one boundary to the next.
type fixedWindow struct{ quota, window, index, count int64 }

func (f *fixedWindow) used(now int64) int64 {
	if now/f.window != f.index {
		return 0
	}
	return f.count
}

func (f *fixedWindow) free(now int64) int64 { return max(0, f.quota-f.used(now)) }
func (f *fixedWindow) take(now int64)       { f.charge(now, now, 1) }
func (f *fixedWindow) wait(now int64) int64 { return f.window - now%f.window }
func (f *fixedWindow) clear()               { f.count = 0 }

func (f *fixedWindow) charge(now, stamp, units int64) {
	if stamp/f.window != now/f.window {
		return
	}
	f.count = f.used(now) + units
	f.index = now / f.window
}
