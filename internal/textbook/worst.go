package textbook

import "time"

// Worst tracks the most units that one key was granted in any window (t-W, t]. The fullest of all windows ends at a
// grant, so only windows that end at a grant are counted.
type Worst struct {
	granted windows
	max     int64
}

// NewWorst returns a Worst for windows of the given length.
func NewWorst(window time.Duration) *Worst {
	return &Worst{granted: newWindows(window)}
}

// Grant records one unit granted to the key, and returns how many units the key was granted in the window that ends
// then.
func (w *Worst) Grant(key string, at int64) int64 { return w.GrantN(key, at, 1) }

// GrantN records the given number of units.
func (w *Worst) GrantN(key string, at, units int64) int64 {
	w.granted.add(key, at, units)
	n := w.granted.count(key, at)
	w.max = max(w.max, n)
	return n
}

// Max returns the most units so far that one key was granted in one window.
func (w *Worst) Max() int64 { return w.max }
