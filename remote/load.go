package remote

import (
	"slices"

	"github.com/tierlimit/tierlimit/limit"
)

// load puts waiting calls on a trip in order of arrival. There may be none. If the leader has little time left, it
// resigns, and the trip stays empty, so that another caller can lead: the trip and all calls on it would have no more
// time than the leader.
func (b *Batcher) load(leader *call, now int64) *trip {
	t, l := b.takeQueue(leader, now)
	if l.newestFirst {
		slices.Reverse(t.calls)
	}
	carried := b.addCalls(t, t.calls[:l.calls], now, l.most, l.passLarge)
	if carried == len(t.calls) {
		return t
	}
	t.left.calls = append(t.left.calls, t.calls[l.calls:]...)
	clear(t.calls[carried:])
	t.calls = t.calls[:carried]
	if l.newestFirst {
		slices.Reverse(t.left.calls)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.left.len() > 0 {
		t.full = true
		t.left.calls = b.queue.putFirst(t.left)
		t.entries, b.last = t.cargo.sent, t.cargo
		if b.closed { // Close has failed the calls in the queue, and these were not in it
			fail(b.queue.take(nil).calls, limit.ErrClosed)
		} else {
			b.startNext()
		}
	}
	if carried == 0 {
		b.remove(t)
	}
	return t
}

// loading says how the calls of a trip are put on it.
type loading struct {
	calls       int // the number of calls that may be sent
	most        int // the largest number of entries
	newestFirst bool
	passLarge   bool // large calls wait for the next trip
}

// takeQueue makes a trip that has all waiting calls. The whole queue is taken, and load puts calls that do not fit
// back at its front, so that the lock is held only briefly. If the leader resigns, the trip has no calls.
func (b *Batcher) takeQueue(leader *call, now int64) (t *trip, l loading) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.spare); n > 0 {
		t, b.spare = b.spare[n-1], b.spare[:n-1]
	} else {
		t = &trip{}
	}
	deadline := b.opt.Deadline.Microseconds()
	if leader != nil && leader.deadline-now < deadline/2 {
		leader.mayLead = false
		t.calls = t.calls[:0]
		return t, loading{}
	}
	taken := b.queue.take(t.calls)
	t.calls, l.calls = taken.calls, taken.len()
	t.left = queue{calls: t.left.calls[:0], entries: taken.entries, large: taken.large}
	l.passLarge = b.last.large && taken.large < taken.len()
	t.flight = flight{leader: leader}
	l.most = b.entriesPerTrip(taken.entries)
	if l.calls > 0 {
		b.trips = append(b.trips, t)
	}
	// If not all calls can be served in time, the newest go first. In order of arrival every call would be
	// answered too late, because every call would have waited for long. This is the case once a call has waited
	// for longer than waitPart, or for so long that its trip would not end in time.
	l.newestFirst = l.calls > 0 && now-t.calls[0].began > deadline-max(b.took.next, int64((1-waitPart)*float64(deadline)))
	if t.single = b.failed && l.calls > 1; t.single {
		// After a failure only one call is sent: the one that came last, because it has the most time left. If
		// Redis hangs, the other calls will not have been sent when their time is over, and so cannot have been
		// charged.
		l.newestFirst, l.calls, l.passLarge = true, 1, false
	}
	t.takes = b.took.next
	return t, l
}

// entriesPerTrip returns how many entries the next trip may carry if the given number wait. It is half of all entries,
// waiting or on other trips, if that is worth a trip, and at most MaxBatch. While Redis is slow, a trip carries as many
// as it can. The lock is held.
func (b *Batcher) entriesPerTrip(waiting int) int {
	if b.slow {
		return b.opt.MaxBatch
	}
	for _, t := range b.trips {
		waiting += t.entries
	}
	if half := waiting / 2; b.alone && half >= fullAlone { // the other half is as many, and worth a trip, too
		return min(b.opt.MaxBatch, half)
	}
	return min(b.opt.MaxBatch, max(fullBatch, (waiting+1)/2))
}

// addCalls puts calls, which are the first of t.calls, into the batch while they fit, up to most entries, and
// moves them to the front of t.calls. It puts calls that do not fit into t.left; with passLarge also large
// calls, see largeGroup. The calls of one key get a part of the batch, and more if calls of other keys leave
// room.
func (b *Batcher) addCalls(t *trip, calls []*call, now int64, most int, passLarge bool) (carried int) {
	t.batch.reset()
	t.cargo = cargo{}
	bound := newBounds(most, b.opt.MaxWork, b.opt.Deadline.Microseconds()/4)
	if b.addCallsWithin(t, calls, now, bound.fairly(t.left.entries), passLarge) {
		calls, t.left.calls = t.left.calls, t.left.calls[:0]
		b.addCallsWithin(t, calls, now, bound, passLarge)
	}
	t.cargo.sent = len(t.batch.runs)
	return t.cargo.calls
}

// addCallsWithin adds calls within the bounds. It reports whether some calls were left behind only because of
// the bound per key, and there is still room for them.
func (b *Batcher) addCallsWithin(t *trip, calls []*call, now int64, bound *bounds, passLarge bool) (roomLeft bool) {
	for i, c := range calls {
		switch {
		case c.claimed(), c.deadline <= now, c.deadline < now+t.takes && b.mayGiveUp(c, now):
			c.fail(c.late()) // unless its caller has left
			t.left.count(c, -1)
			continue
		case passLarge && c.isLarge():
			t.left.calls = append(t.left.calls, c)
			continue
		}
		switch t.batch.add(c, bound) {
		case added:
			// If its caller leaves just now, the call is sent, but its answer is not used.
			c.send()
			t.calls[t.cargo.calls] = c
			t.cargo.calls++
			t.cargo.unmerged += c.entries()
			t.cargo.large = t.cargo.large || c.isLarge()
			t.left.count(c, -1)
		case keysFull:
			t.left.calls = append(t.left.calls, c)
			roomLeft = true
		case full:
			if !c.isLarge() {
				t.left.calls = append(t.left.calls, calls[i:]...)
				return false
			}
			t.left.calls = append(t.left.calls, c) // other calls may fit
		}
	}
	return roomLeft
}

// mayGiveUp reports whether a call need not be sent if its answer would be late at the speed of the last trips.
// That is so if the call has waited behind others for a while. Calls that have just come are always sent, so
// that trips show when Redis has become faster. A caller that has less time than others waits until its own
// time is over.
func (b *Batcher) mayGiveUp(c *call, now int64) bool {
	waited := float64(now - c.began)
	return waited > (1-waitPart)*float64(b.opt.Deadline.Microseconds()) && !c.hurried && !c.short
}
