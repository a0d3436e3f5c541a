package remote

import (
	"runtime"

	"github.com/tierlimit/tierlimit/limit"
)

// Who makes trips, and when.
//
// There is one trip at a time, and it is led by one of the callers that it carries. Who
// arrives and finds none under way leads at once. Who arrives meanwhile waits for the next
// trip, which carries all who wait, and which one of them leads. That is group commit: it
// needs no timer, a caller who is alone pays nothing for it, and the longer Redis takes, with
// this process's calls or with those of others, the more calls share a trip.
//
// A further trip at the same time starts if enough wait to fill it, see fullBatch; or, while Redis is
// far away and not busy, for whoever comes, see distance.

const (
	// fullBatch is how many entries make a further trip worth while. Riding together saves
	// both sides what a trip costs by itself, about as much as ten entries. From this many on
	// it saves little, and more is gained if Redis works at one trip while this process
	// prepares another. Several trips then divide the entries evenly.
	fullBatch = 32
	// slowPart is the part of the deadline above which Redis counts as slow: it has a queue, of
	// many processes, and one trip of each at a time keeps it busy.
	slowPart = 8
)

// enqueue gives a call its place in the queue, and reports whether its caller is to lead
// a trip at once, and whether there are others to wait for.
func (b *Batcher) enqueue(c *call) (lead, others bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false, false, limit.ErrClosed
	}
	if n := b.queue.entries; n >= b.opt.Queue || n >= b.room.mayWait(b.opt.Deadline.Microseconds()) && b.room.mayTurnAway(c.asked) {
		return false, false, ErrNoRoom
	}
	b.queue.add(c)
	if !b.mayStart() {
		b.setReaper(c)
		return false, false, nil
	}
	b.start()
	if c.lead() {
		return true, b.last.calls > 1, nil
	}
	b.setReaper(c)
	if !b.elect() {
		go b.lead(nil, b.last.calls > 1)
	}
	return false, false, nil
}

// mayStart reports whether a trip may start for those who wait. The lock is held.
func (b *Batcher) mayStart() bool {
	if b.inFlight == 0 {
		return true
	}
	if b.inFlight >= b.opt.InFlight || b.slow {
		return false
	}
	// Calls of one key share an entry: the last batch tells how many do.
	full := b.queue.entries*b.last.sent >= fullBatch*max(1, b.last.asked)
	if !full && !b.distance.isFar() {
		return false
	}
	deadline := b.opt.Deadline.Microseconds()
	for _, t := range b.trips {
		if t.ends > 0 && t.ends < localTime()+deadline-deadline/slowPart {
			return false // it takes long already
		}
	}
	return true
}

// start takes the place of a trip that may start. The lock is held.
func (b *Batcher) start() {
	b.inFlight++
	b.running.Add(1)
}

// elect has a trip that may start led by one of those who wait: who came last has the most
// time left to do so. It reports false if none of them can. The lock is held.
func (b *Batcher) elect() bool {
	for i := b.queue.len() - 1; i >= 0; i-- {
		if c := b.queue.calls[i]; c.lead() {
			c.elected = true
			c.done <- struct{}{}
			return true
		}
	}
	return false
}

// startNext has a trip made for those who wait, if one may start. The lock is held.
func (b *Batcher) startNext() {
	if b.queue.len() == 0 || !b.mayStart() {
		return
	}
	b.start()
	if !b.elect() {
		go b.lead(nil, true)
	}
}

// lead makes a trip, and has the next one made if anybody waits. The leader's call is nil
// if a goroutine leads. others says whether there may be any to wait for.
func (b *Batcher) lead(leader *call, others bool) {
	defer b.running.Done()
	if others {
		b.awaitOthers()
	}
	if leader != nil && leader.deadline-localTime() < b.opt.Deadline.Microseconds()/2 {
		b.resign(leader)
		return
	}
	t := b.load(leader)
	hasPlace := true
	if len(t.calls) > 0 {
		hasPlace = b.run(t)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if leader != nil && leader.follow() {
		b.setReaper(leader)
	}
	b.spare = append(b.spare, t)
	if hasPlace {
		b.inFlight--
		b.startNext()
	}
}

// resign lets another lead in the place of one who has little time left: the trip, and all whom
// it carries, would have no more than that.
func (b *Batcher) resign(leader *call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	leader.mayLead = false
	if leader.follow() {
		b.setReaper(leader)
	}
	b.inFlight--
	b.startNext()
}

// awaitOthers lets callers run who have just been answered: those who ask again at once then
// share the next trip, and not a few each of many. If enough wait already there is
// nothing to wait for; and under load each yield lasts as long as all who can run take.
func (b *Batcher) awaitOthers() {
	for before := -1; ; runtime.Gosched() {
		b.mu.Lock()
		waiting, enough := b.queue.entries, b.opt.MaxBatch*b.last.asked/max(1, b.last.sent)
		b.mu.Unlock()
		if waiting <= before || waiting >= enough {
			return
		}
		before = waiting
	}
}
