package remote

import "math"

// room is how many calls may wait: those that will be answered in time, at the rate at which
// calls are answered. It is guarded by the batcher's lock.
//
// The rate is learnt from full trips only, those that could not carry all who waited: it says
// how fast this process's calls can be answered. Others say how fast they came.
type room struct {
	perCall float64 // µs from one answer to the next, smoothed; 0: trips are not full
	last    int64   // local time at which a trip has ended
}

// waitPart is the part of its time that a call may wait. The rest is for what cannot be
// foreseen.
const waitPart = 0.8

// calls is how many may wait before a call that has so many µs.
func (r *room) calls(within int64) int {
	if r.perCall == 0 {
		return math.MaxInt
	}
	return int(waitPart * float64(within) / r.perCall)
}

// ended learns from a trip that took so many µs.
func (r *room) ended(now, took int64, calls int, full bool) {
	// The trips before it, or beside it, had their part of the time.
	sample := float64(max(1, min(took, now-r.last))) / float64(calls)
	r.last = now
	switch {
	case !full:
		r.perCall = 0
	case r.perCall == 0:
		r.perCall = sample
	default:
		r.perCall += (sample - r.perCall) / 8
	}
}
