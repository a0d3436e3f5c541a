package model

// fixedWindow counts the units of the current window; windows are aligned to
// the epoch.
type fixedWindow struct {
	quota, window int64

	newest int64 // the last charge
	units  int64 // what was charged in its window
}

// current is what was charged in the window that t lies in.
func (f *fixedWindow) current(t int64) int64 {
	if t/f.window != f.newest/f.window {
		return 0
	}
	return f.units
}

// untilEnd is the time from t to the end of its window.
func (f *fixedWindow) untilEnd(t int64) int64 { return f.window - t%f.window }

func (f *fixedWindow) free(t int64) int64 { return max(0, f.quota-f.current(t)) }

func (f *fixedWindow) charge(t, cost int64) {
	f.units = f.current(t) + cost
	f.newest = t
}

func (f *fixedWindow) refund(t, stamp, _, units int64) (given int64, changed bool) {
	if stamp/f.window != t/f.window {
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

func (f *fixedWindow) clone() tally {
	c := *f
	return &c
}
