package model

// fixedWindow counts the units of the current window; windows are aligned to
// the epoch.
type fixedWindow struct {
	quota, window int64

	index int64 // the window of the last charge
	units int64 // what was charged in it
}

// current is what was charged in the window that t lies in.
func (f *fixedWindow) current(t int64) int64 {
	if t/f.window != f.index {
		return 0
	}
	return f.units
}

// untilEnd is the time from t to the end of its window.
func (f *fixedWindow) untilEnd(t int64) int64 { return f.window - t%f.window }

func (f *fixedWindow) free(t int64) int64 { return f.quota - f.current(t) }

func (f *fixedWindow) charge(t, cost int64) {
	f.units = f.current(t) + cost
	f.index = t / f.window
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

func (f *fixedWindow) clone() tally {
	c := *f
	return &c
}
