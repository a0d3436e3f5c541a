package remote

import (
	"runtime"
	"slices"

	"github.com/tierlimit/tierlimit/limit"
)

// Which goroutine makes a trip, and when.
//
// There is usually one trip at a time, led by one of the callers that it carries. A caller that finds no trip
// in flight leads one at once. Callers that arrive meanwhile wait for the next trip, which carries all of them,
// and which one of them leads. This is group commit: it needs no timer, and it costs a single caller nothing.
// The longer Redis takes, because of this process's calls or those of others, the more calls share a trip.
//
// A further trip starts at the same time if enough calls wait to fill it, see minEntries. A further trip starts for
// any call while Redis is far away and not busy, see distance, and if the process has few callers and Redis to itself,
// see ownTripsPay.

const (
	// fullBatch is the number of entries from which a second trip pays. Entries that share a trip save both
	// sides the fixed cost of a trip, which is that of about ten entries. From fullBatch on, sharing saves
	// little, and more is gained if Redis works on one trip while this process prepares another. Several trips
	// then divide the entries evenly.
	fullBatch = 32
	// fullAlone is the same number for the only process of a fleet. While that process prepares a trip, Redis
	// has nothing else to do, so a second trip pays sooner, provided that both carry as many. From two
	// processes on, each prepares its trip while Redis works on the trips of the others.
	fullAlone = 3
	// mergeUpTo is the number of entries up to which a trip of the only process of a fleet waits for all callers that were
	// just answered. A larger trip starts once as many wait as the last one carried. Otherwise both trips start and end at
	// the same time, and Redis and this process wait for each other.
	mergeUpTo = 12
	// fewCallers is the number of callers up to which each makes a trip of its own, see ownTripsPay. With more, a program
	// that does nothing else would gain as well, but a server's other goroutines would wait longer for a processor.
	fewCallers = 4
	// fewFor is for how long, in µs, no more than fewCallers must have waited at a time. A server whose requests
	// arrive at random often has few of them at a time. If these made trips of their own, its slowest requests
	// would take two to three times as long.
	fewFor = 1_000_000
	// If a trip takes Redis more than 1/slowPart of the deadline, and the distance does not explain it, Redis
	// counts as slow: it has a queue of trips from many processes, and one trip at a time from each of them
	// keeps it busy. If there is only one process, it is other programs that keep Redis busy. Then a second trip
	// starts if it is full, since Redis takes as many trips as wait whenever it has time.
	//
	// No further trip starts while one has been in flight for longer than that, or than expected if Redis is slow,
	// plus the delay that this process caused on the last trip. The delay is added because Redis may have answered
	// long ago, if this process has no time to read answers.
	slowPart = 8
)

// enqueue puts a call into the queue. It reports whether its caller must lead a trip at once, and
// whether there may be others to wait for.
func (b *Batcher) enqueue(c *call) (lead, others bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false, false, limit.ErrClosed
	}
	if b.queue.entries >= b.opt.Queue || !b.hasRoom(c.began) && b.room.mayTurnAway(c.began) {
		return false, false, ErrNoRoom
	}
	b.repeated = c.group == nil && c.entry.Hash == b.newest && !c.entry.Rule.slots
	b.newest = c.entry.Hash
	b.queue.add(c)
	if b.waiting.Load() > fewCallers {
		b.many = c.began
	}
	if !b.mayStart() {
		b.setReaper(c.due(c.began))
		return false, false, nil
	}
	b.start()
	others = b.last.calls > 1
	if c.lead() {
		return true, others, nil
	}
	b.setReaper(c.due(c.began))
	b.elect(others)
	return false, false, nil
}

// mayStart reports whether a trip may start for the waiting calls. The lock is held.
func (b *Batcher) mayStart() bool {
	if b.inFlight == 0 {
		return true
	}
	if b.inFlight >= b.opt.InFlight {
		return false
	}
	most := b.slowFrom() + b.delay
	if b.slow {
		if b.failed || !b.alone || b.inFlight > 1 || !b.fill(b.opt.MaxBatch) {
			return false
		}
		most = max(most, b.took.next)
	} else if !b.fill(b.minEntries()) && !b.distance.isFar() && !b.ownTripsPay() {
		return false
	}
	deadline := b.opt.Deadline.Microseconds()
	for _, t := range b.trips {
		if t.ends > 0 && t.ends < localTime()+deadline-most {
			return false // it has already taken long
		}
	}
	return true
}

// fill reports whether the waiting calls fill a trip of that many entries. Calls of one key share an entry: the last
// trip shows how many do. The lock is held.
func (b *Batcher) fill(entries int) bool {
	return b.queue.entries*b.last.sent >= entries*max(1, b.last.unmerged)
}

// slowFrom returns the duration of a trip, in µs, from which on Redis counts as slow. The lock is held.
func (b *Batcher) slowFrom() int64 {
	from := b.opt.Deadline.Microseconds() / slowPart
	if b.distance.isFar() {
		from = max(from, busyPart*b.distance.roundTrip())
	}
	return from
}

// minEntries returns the number of entries from which a further trip pays. The lock is held.
func (b *Batcher) minEntries() int {
	if b.alone && b.inFlight == 1 && b.last.unmerged >= fullAlone && len(b.trips) == 1 && b.trips[0].entries > 0 {
		return max(fullAlone, b.trips[0].entries) // the other trip has been sent
	}
	return fullBatch
}

// ownTripsPay reports whether the waiting calls need not share a trip. To share one, callers must wake each other up, and if
// Go may use another processor, it starts a thread there each time. For few callers that takes longer than trips of
// their own, unless other processes keep Redis busy, or the calls would share an entry. Few calls about slots of a key
// do, because some callers acquire what others release. The lock is held.
func (b *Batcher) ownTripsPay() bool {
	return b.alone && b.parallel && !b.repeated && localTime()-b.many > fewFor
}

// start takes a place for a trip that may start. The lock is held.
func (b *Batcher) start() {
	b.inFlight++
	b.running.Add(1)
}

// elect chooses one of the waiting callers to lead a trip that may start: the one that came last, because it
// has the most time left. If none of them may lead, a separate goroutine does. The lock is held.
func (b *Batcher) elect(others bool) {
	for _, c := range slices.Backward(b.queue.calls) {
		if c.lead() {
			c.elected = true
			c.done <- struct{}{}
			return
		}
	}
	go b.lead(nil, others)
}

// startNext starts a trip for the waiting calls, if one may start. The lock is held.
func (b *Batcher) startNext() {
	if b.queue.len() > 0 && b.mayStart() {
		b.start()
		b.elect(true)
	}
}

// lead makes a trip, and starts the next one if any call waits. leader is nil if a separate
// goroutine leads. others says whether there may be other callers to wait for.
func (b *Batcher) lead(leader *call, others bool) {
	defer b.running.Done()
	if others {
		b.awaitOthers()
	}
	now := localTime()
	t := b.load(leader, now)
	hasPlace, returned := true, false
	defer func() { // also if a hook of the client panics, and the caller's program recovers
		if !returned {
			hasPlace = b.abandon(t)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if leader != nil {
			b.follow(leader)
		}
		clear(t.calls) // let go of the callers' contexts
		b.spare = append(b.spare, t)
		if hasPlace {
			b.inFlight--
			b.startNext()
		}
	}()
	if len(t.calls) > 0 {
		hasPlace = b.run(t, now)
	}
	returned = true
}

// follow lets a caller that has led a trip wait like the others again, unless its call is answered. The call is
// in the queue, or on another trip, which may end later than the call's deadline. The lock is held.
func (b *Batcher) follow(leader *call) {
	if leader.follow(); !leader.claimed() {
		b.setReaper(leader.due(leader.began))
	}
}

// awaitOthers yields to callers that were just answered. Those that ask again at once then share the next trip,
// instead of being spread over many trips. It does not yield if enough calls wait already, since under load
// each yield takes as long as all runnable goroutines do.
func (b *Batcher) awaitOthers() {
	for before := -1; ; runtime.Gosched() {
		b.mu.Lock()
		waiting, enough := b.queue.entries, b.enough()
		b.mu.Unlock()
		if waiting <= before || waiting >= enough {
			return
		}
		before = waiting
	}
}

// enough returns the number of waiting entries from which a trip need not wait for more. The lock is held.
func (b *Batcher) enough() int {
	if b.alone && b.last.sent >= mergeUpTo {
		return b.last.unmerged
	}
	return b.opt.MaxBatch * b.last.unmerged / max(1, b.last.sent)
}
