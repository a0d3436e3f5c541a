package model

import (
	"time"

	"github.com/tierlimit/tierlimit/limit"
)

// fixedWindow counts the units of the current window; windows are aligned to
// the epoch, or to the calendar.
type fixedWindow struct {
	limit limit.Limit

	newest int64 // the time of the last charge
	units  int64 // the units charged in its window
}

// bounds returns the beginning and the end of the window that t lies in.
func (f *fixedWindow) bounds(t int64) (start, end int64) {
	if f.limit.IsCalendar() {
		start, end := f.limit.Calendar(time.UnixMicro(t))
		return start.UnixMicro(), end.UnixMicro()
	}
	window := f.limit.Window().Microseconds()
	start = t - t%window
	return start, start + window
}

func (f *fixedWindow) same(t, u int64) bool {
	start, end := f.bounds(t)
	return start <= u && u < end
}

// current returns the number of units charged in the window that t lies in.
func (f *fixedWindow) current(t int64) int64 {
	if !f.same(t, f.newest) {
		return 0
	}
	return f.units
}

// untilEnd returns the time from t to the end of its window.
func (f *fixedWindow) untilEnd(t int64) int64 {
	_, end := f.bounds(t)
	return end - t
}

func (f *fixedWindow) free(t int64) int64 { return max(0, f.limit.Quota()-f.current(t)) }

func (f *fixedWindow) charge(t, cost int64) {
	f.units = f.current(t) + cost
	f.newest = t
}

// belongTo makes the count that of a key whose newest charge was at t: it counts as long as that charge does, in
// windows of any length. GCRA's units may have been charged before t, because a part of the newest charge was
// refunded.
func (f *fixedWindow) belongTo(t int64) {
	if f.same(t, f.newest) {
		f.newest = t
	}
}

// chargePast counts the units whose time lies in the window of t.
func (f *fixedWindow) chargePast(t int64, past []Past) (charged int64, changed bool) {
	for _, p := range past {
		if f.same(t, t-p.Age) {
			charged += p.Units
		}
	}
	charged = min(charged, room(f.limit.Quota(), f.current(t)))
	if charged > 0 {
		f.charge(t, charged)
	}
	return charged, charged > 0
}

func (f *fixedWindow) refund(t, stamp, _, units int64) (given int64, changed bool) {
	if !f.same(t, stamp) {
		return 0, false
	}
	given = min(units, f.current(t))
	f.units -= given
	return given, given > 0
}

func (f *fixedWindow) wait(t, cost int64) int64 {
	if cost <= f.free(t) {
		return 0
	}
	return f.untilEnd(t)
}

func (f *fixedWindow) reset(t int64) int64 {
	if f.current(t) == 0 {
		return 0
	}
	return f.untilEnd(t)
}

func (f *fixedWindow) held() int64 { return f.units }

// past returns all units at the newest charge, because it is not known when in their window they were charged.
func (f *fixedWindow) past(newest, _, _ int64) []logEntry { return []logEntry{{newest, f.units}} }

func (f *fixedWindow) clone() tally {
	c := *f
	return &c
}
