package simulate

import "github.com/tierlimit/tierlimit/limit"

// Adversary is when to send requests of one unit, so that the algorithm lets as much
// through in one window as it ever does: times in µs since the epoch, ascending, from
// about start on, for one key that is not used otherwise. All is over within three
// windows of start.
//
//	sliding log, strict  the whole limit at the end of a sub-window, and more just
//	                     before it is one window old: nothing of that passes
//	estimate             the same: by then the first units count as one
//	GCRA                 the whole burst at once, and a unit whenever one has returned
//	fixed window         the whole limit right before a boundary, and right behind it
func Adversary(l limit.Limit, a limit.Algorithm, start int64) (times []int64) {
	quota, window := l.Quota(), l.Window().Microseconds()
	send := func(at, requests int64) {
		for range requests {
			times = append(times, at)
		}
	}
	boundary := start - start%window + window
	switch {
	case a.Same(limit.FixedWindow()):
		send(boundary-1, quota)
		send(boundary, quota)
	case a.Same(limit.GCRA()):
		send(boundary, l.Burst())
		for i := int64(1); i < quota; i++ {
			after := returned(i, window, quota)
			if l.Burst() == 1 {
				// Each unit waits for the one before, which came up to a µs late itself.
				after = i * returned(1, window, quota)
			}
			send(boundary+after, 1)
		}
	default:
		send(boundary-1, quota)
		send(boundary+window-2, quota)
	}
	return times
}

// returned is the first whole µs at which i units have returned, at quota units per
// window.
func returned(i, window, quota int64) int64 {
	whole, rest := window/quota, window%quota
	return i*whole + (i*rest+quota-1)/quota
}
