package textbook

import "time"

// windows remembers, for each key, the times within the latest window.
type windows struct {
	length int64 // microseconds
	times  map[string][]int64
}

func newWindows(length time.Duration) windows {
	return windows{length: length.Microseconds(), times: make(map[string][]int64)}
}

// count forgets the key's times that have left the window (at-length, at], and
// returns how many are left.
func (w windows) count(key string, at int64) int64 {
	times := w.times[key]
	for len(times) > 0 && times[0] <= at-w.length {
		times = times[1:]
	}
	w.times[key] = times
	return int64(len(times))
}

func (w windows) add(key string, at int64) {
	w.times[key] = append(w.times[key], at)
}
