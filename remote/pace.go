package remote

import (
	"math"
	"time"
)

// pace says how many trips may be under way at once, and how many entries each may
// carry. Callers who find a place leave at once; the others ride together on the next
// trip, which costs less for each. It is guarded by the batcher's lock.
//
// A second trip at the same time makes callers wait less, but each costs both sides
// about 20 µs. So there is always a place for one trip, and for two if not all who wait
// fit into one, or are worth dividing (see share); further ones are paid from a budget, of so many a second: it is enough
// for all callers of a quiet process, and a small part of what a busy one has to decide.
//
// Each further trip at a time needs a connection, and to open one costs as much as ten
// trips. So there is one more only after some have ended well: a process that starts under
// load would else spend its first deadline on opening connections.
//
// Many processes share a Redis. When its part of a trip's time is long against the
// deadline, Redis has a queue: then each process keeps to one trip, and if that is not
// enough, to a smaller one. That is what keeps a hundred processes from queueing each other past
// their deadlines. And no more callers may wait than will be served in time: the others
// had better hear at once that there is no room for them.
type pace struct {
	deadline int64 // µs
	most     int   // trips under way at once
	mostIn   int   // entries in a trip, at first

	cycle   int64 // how long trips take, µs, smoothed
	server  int64 // the part of it that is Redis's, µs, smoothed
	entries int   // that a trip may carry at present
	room    int   // callers who may wait
	reach   int   // trips that may be under way at once by now, up to most
	good    int   // trips that have ended well since reach has changed
	riders  int   // callers that a trip carries, smoothed, in eighths
	credit  int64 // µs
	since   int64 // local time of the credit
}

const (
	extraTripsPerSecond = 1_000
	extraTripCost       = 1_000_000 / extraTripsPerSecond // µs
	mostCredit          = 16 * extraTripCost
	// tripsBeforeMore must have ended well before one more may be under way at once.
	tripsBeforeMore = 8
	// Where so few would ride together, handing over their places and answers costs more
	// than is saved: all travel alone.
	fewRiders         = 3
	fewRidersTripCost = 10 // µs
	fewestEntries     = 8
	// Trips are divided into halves of so many callers or more, if Redis takes as long as
	// this for one.
	fewestDivided = 16
	worthDividing = 50 // µs
)

func newPace(deadline time.Duration, most, mostIn int) pace {
	return pace{deadline: deadline.Microseconds(), most: most, mostIn: mostIn, entries: mostIn, room: math.MaxInt, reach: 1, credit: mostCredit}
}

// mayStart reports whether one more trip may start. backlog says that there is more
// waiting than a trip can carry.
func (p *pace) mayStart(underWay int, now int64, backlog bool) bool {
	if underWay == 0 {
		return true
	}
	grow := underWay >= p.reach
	if grow && (p.reach >= p.most || p.good < tripsBeforeMore) {
		return false
	}
	if !backlog || underWay > 1 {
		if p.busy() || !p.pay(now) {
			return false
		}
	}
	if grow {
		p.reach, p.good = p.reach+1, 0
	}
	return true
}

// share is how many of the waiting calls the next trip takes. While Redis is at one half of
// all calls, those that are riding on the other trip included, this process prepares the
// other half: if they are many, and give Redis more to do than a further trip costs, and if
// it has not much else to do.
func (p *pace) share(waiting, riding, underWay int) int {
	half := (waiting + riding + 1) / 2
	if half < fewestDivided || underWay > 2 || p.reach < 2 || p.server < worthDividing || p.server > p.deadline/32 || p.busy() {
		return waiting
	}
	return min(waiting, half)
}

// busy says that trips take so long that no more of them should be under way at once.
func (p *pace) busy() bool { return p.server > p.deadline/8 || p.cycle > p.deadline/4 }

// pay takes what a further trip costs from the budget, if it is there.
func (p *pace) pay(now int64) bool {
	p.credit = min(mostCredit, p.credit+now-p.since)
	p.since = now
	cost := int64(extraTripCost)
	if p.riders < fewRiders*8 {
		cost = fewRidersTripCost
	}
	if p.credit < cost {
		return false
	}
	p.credit -= cost
	return true
}

// ended learns from a trip: how long it took, how much of that was Redis's, and how many
// entries and callers it carried. How much may be asked of Redis at once depends on
// Redis's time only: where this process has no time, smaller trips would take more of it.
func (p *pace) ended(took, server int64, entries, callers int) {
	p.good++
	p.cycle += (took - p.cycle) / 8
	p.server += (server - p.server) / 8
	p.riders += callers - p.riders/8
	// Who comes last waits for a quarter of the deadline, and then travels: a machine that stands
	// still for a moment must not make all who wait too late.
	p.room = math.MaxInt
	if entries >= p.entries {
		p.room = max(2*callers, int(int64(callers)*p.deadline/4/max(1, p.cycle)))
	}
	switch {
	case server > p.deadline/2:
		p.entries = max(min(fewestEntries, p.mostIn), p.entries/2)
	case server < p.deadline/4 && entries >= p.entries:
		p.entries = min(p.mostIn, p.entries*2)
	}
}

// failed learns from a trip without an answer.
func (p *pace) failed() { p.reach, p.good = 1, 0 }
