package textbook

import "time"

// windows remembers the grants of each key within the latest window.
type windows struct {
	length int64 // microseconds
	grants map[string]*grants
}

type grants struct {
	list []grant
	sum  int64
}

type grant struct{ at, units int64 }

func newWindows(length time.Duration) windows {
	return windows{length: length.Microseconds(), grants: make(map[string]*grants)}
}

// count forgets the key's grants that have left the window (at-length, at], and returns how many units are left.
func (w windows) count(key string, at int64) int64 {
	g := w.grants[key]
	if g == nil {
		return 0
	}
	for len(g.list) > 0 && g.list[0].at <= at-w.length {
		g.sum -= g.list[0].units
		g.list = g.list[1:]
	}
	return g.sum
}

func (w windows) add(key string, at, units int64) {
	g := w.grants[key]
	if g == nil {
		g = &grants{}
		w.grants[key] = g
	}
	g.list, g.sum = append(g.list, grant{at, units}), g.sum+units
}
