package remote

import (
	"context"
	"math"
	"sync/atomic"
	"time"
)

// room decides how many calls may wait: as many as will be answered in time, at the rate at which calls are
// being answered. It is guarded by the batcher's lock, except for the last three fields.
//
// The rate is measured on full trips. From the time when such a trip is loaded until it ends, some calls wait that
// neither it nor another trip could carry, so it shows the rate at which this process's calls can be answered. Other
// trips show only the rate at which calls arrive, and count only if that is higher.
type room struct {
	took  float64 // µs that recent trips took
	calls float64 // answered by these trips
	last  int64   // local time at which the last trip ended
	full  int64   // local time at which the last full trip ended

	// The rest may be used without the lock.
	turnAwayAt atomic.Int64 // local time, advanced by each call turned away; see mayTurnAway
	turnedAway atomic.Int64 // calls turned away since the last trip ended
	noneUntil  atomic.Int64 // local time until which TurnsAway assumes that there is no room
}

const (
	// waitPart is the part of its time that a call may wait. The rest is a reserve for delays that
	// cannot be foreseen.
	waitPart = 0.8
	// roomPart is the part of the deadline for which trips must have been full before the rate is used. Trips
	// are remembered for twice as long. A single trip may be slow for many reasons, and callers that are turned
	// away because of it often ask again at once, and delay the next trip.
	roomPart = 0.5
	// At most one call in turnAwayEvery µs is turned away on arrival, with bursts of
	// turnAwayAtOnce.
	turnAwayEvery  = 10
	turnAwayAtOnce = 500
	// Under overload, TurnsAway checks for room once in lookForRoom µs. If each call checked, the calls would
	// contend for the batcher's lock, which the trips need.
	lookForRoom = 100
)

// mayTurnAway reports whether a call that finds no room is turned away at once. Otherwise the call waits
// anyway. It is answered if there is time, or decided without Redis at its deadline. The number of calls turned
// away is bounded, because callers that are turned away and ask again at once occupy the processors: with a few
// thousand of them, trips would take a hundred times as long.
func (r *room) mayTurnAway(now int64) bool {
	for {
		before := r.turnAwayAt.Load()
		last := max(before, now-turnAwayEvery*turnAwayAtOnce)
		if last >= now {
			return false
		}
		if r.turnAwayAt.CompareAndSwap(before, last+turnAwayEvery) {
			r.turnedAway.Add(1)
			return true
		}
	}
}

// TurnsAway reports whether a call made now is turned away at once, as Decide does with [ErrNoRoom]. Once there
// is no room, TurnsAway assumes for lookForRoom that there is none. It does not wait for the batcher's lock: if many
// calls did, each would have to wait until the others have had their turn. While the lock is taken, it assumes so for
// ten times as long.
func (b *Batcher) TurnsAway() bool {
	now := localTime()
	if until := b.room.noneUntil.Load(); now >= until {
		if !b.mu.TryLock() {
			return now < until+9*lookForRoom && b.room.mayTurnAway(now)
		}
		hasRoom := b.hasRoom(now)
		b.mu.Unlock()
		if hasRoom {
			return false
		}
		b.room.noneUntil.Store(now + lookForRoom)
	}
	return b.room.mayTurnAway(now)
}

// hasRoom reports whether one more call would be answered in time, if the calls before it, which wait or are
// under way, are answered at the rate of the last ones. The lock is held.
func (b *Batcher) hasRoom(now int64) bool {
	most := b.room.capacity(now, b.opt.Deadline.Microseconds())
	before := b.queue.entries
	for _, t := range b.trips {
		before += t.unmerged
	}
	return before < most
}

// DelayDenied is for callers that are denied without Redis although Redis is up. It returns at once for a few
// of them (see room.mayTurnAway). For the others it returns when the time that a decision may take is over, or
// ctx ends.
func (b *Batcher) DelayDenied(ctx context.Context) {
	if b.room.mayTurnAway(localTime()) {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(TimeLeft(ctx, b.opt.Deadline)):
	}
}

// capacity returns how many calls may wait or be under way if they must be answered within the given µs.
func (r *room) capacity(now, within int64) int {
	if r.took < roomPart*float64(within) || now-r.full > within {
		return math.MaxInt
	}
	return int(waitPart * float64(within) * r.calls / r.took)
}

// ended records a trip that took the given µs. deadline is the limiter's deadline.
func (r *room) ended(now, took int64, calls int, full bool, deadline int64) {
	if now-r.full > deadline {
		r.took, r.calls = 0, 0
	}
	took = max(1, min(took, now-r.last)) // other trips were made before this one or at the same time
	r.last = now
	if full {
		r.full = now
	} else if float64(calls)*r.took <= float64(took)*r.calls {
		return
	}
	r.took += float64(took)
	r.calls += float64(calls)
	if most := 2 * roomPart * float64(deadline); r.took > most {
		r.calls *= most / r.took
		r.took = most
	}
}
