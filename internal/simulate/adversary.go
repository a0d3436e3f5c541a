package simulate

import "github.com/tierlimit/tierlimit/limit"

// Adversary returns when to send requests of one unit so that the algorithm lets through as much in one window as
// it ever does. The times are in µs since the epoch, ascending, from about start on, for one key that is not used
// otherwise. The last is within three windows of start.
//
//	sliding log, strict  the whole limit at the end of a sub-window, and more just
//	                     before it is one window old: none of these pass
//	estimate             the same: by then the first units count as one
//	GCRA                 the whole burst at once, and a unit whenever one has returned
//	fixed window         the whole limit right before a boundary, and again right after it
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
				// Each unit waits for the one before it, which came up to a µs late itself.
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

// returned returns the first whole µs at which i units have returned, at quota units per window.
func returned(i, window, quota int64) int64 {
	whole, rest := window/quota, window%quota
	return i*whole + (i*rest+quota-1)/quota
}
