package remote

import "math"

// room is how many calls may wait: those that will be answered in time, at the rate at which
// calls are answered. It is guarded by the batcher's lock.
//
// The rate is learnt from full trips only, those that could not carry all who waited: it says
// how fast this process's calls can be answered. Others say how fast they came.
type room struct {
	took   float64 // µs in which full trips were made, of late
	calls  float64 // that they answered
	last   int64   // local time at which a trip has ended
	behind bool    // calls were left behind by it

	turnedAway int64 // local time up to which calls may have been turned away, see mayTurnAway
}

const (
	// waitPart is the part of its time that a call may wait. The rest is for what cannot be
	// foreseen.
	waitPart = 0.8
	// roomPart is the part of the deadline for which trips must have been full before they
	// say anything, and half of what they are remembered for: single trips take long for many
	// reasons, and who is turned away because of one comes back at once and delays the next.
	roomPart = 0.5
	// turnAwayEvery and turnAwayAtOnce are how many calls are turned away on arrival: one in so
	// many µs, and so many together.
	turnAwayEvery  = 10
	turnAwayAtOnce = 500
)

// mayTurnAway reports whether a call that finds no room is turned away at once. Others wait all
// the same, and are answered if there is time, or decided elsewhere at their deadline. For who
// is turned away and asks again at once does nothing else, and keeps the processors from the
// trips: with a few thousand such callers, trips would take a hundred times as long.
func (r *room) mayTurnAway(now int64) bool {
	r.turnedAway = max(r.turnedAway, now-turnAwayEvery*turnAwayAtOnce)
	if r.turnedAway >= now {
		return false
	}
	r.turnedAway += turnAwayEvery
	return true
}

// mayWait is how many calls may wait that have so many µs.
func (r *room) mayWait(within int64) int {
	if r.took < roomPart*float64(within) {
		return math.MaxInt
	}
	return int(waitPart * float64(within) * r.calls / r.took)
}

// ended learns from a trip that took so many µs. deadline is the limiter's.
func (r *room) ended(now, took int64, calls int, full bool, deadline int64) {
	if full {
		if r.behind {
			took = now - r.last // others were made before it, or beside it
		}
		r.took += float64(max(1, took))
		r.calls += float64(calls)
		if most := 2 * roomPart * float64(deadline); r.took > most {
			r.calls *= most / r.took
			r.took = most
		}
	} else {
		r.took, r.calls = 0, 0
	}
	r.last, r.behind = now, full
}
