package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/tierlimit/tierlimit/limit"
)

// trip carries calls to Redis and their answers back.
type trip struct {
	calls  []*call
	batch  batch
	cargo  cargo
	left   queue // calls that it could not carry, and that wait for the next trip
	single bool  // it carries one of several calls, after a failure; see load
	takes  int64 // how long it was expected to take when it was loaded
	flight
}

// flight is the part of a trip that the batcher's lock guards.
type flight struct {
	leader   *call        // nil: a separate goroutine leads
	entries  int          // entries that are sent; 0 while it is loaded
	unmerged int          // entries of the calls, as in cargo; 0 while it is loaded
	ends     int64        // local time at which the trip is given up; 0 while it is loaded
	ctx      *tripContext // of the command
	done     func(error)
	full     bool // calls have waited ever since it was loaded
	givenUp  bool
	passedOn bool // its place was passed on when it was given up
}

// cargo is how much a trip carries.
type cargo struct {
	calls    int
	unmerged int  // entries of the calls, before calls of one key were merged
	sent     int  // entries that are sent
	large    bool // a large call is among them
}

// load puts waiting calls on a trip in order of arrival. There may be none. If the leader has little time left, it
// resigns, and the trip stays empty, so that another caller can lead: the trip and all calls on it would have no more
// time than the leader.
func (b *Batcher) load(leader *call, now int64) *trip {
	// The whole queue is taken, and calls that do not fit are put back at its front, so that the
	// lock is held only briefly.
	b.mu.Lock()
	var t *trip
	if n := len(b.spare); n > 0 {
		t, b.spare = b.spare[n-1], b.spare[:n-1]
	} else {
		t = &trip{}
	}
	deadline := b.opt.Deadline.Microseconds()
	if leader != nil && leader.deadline-now < deadline/2 {
		leader.mayLead = false
		t.calls = t.calls[:0]
		b.mu.Unlock()
		return t
	}
	taken := b.queue.take(t.calls)
	t.calls = taken.calls
	passLarge := b.last.large && taken.large < taken.len()
	t.flight = flight{leader: leader}
	most, calls := b.entriesPerTrip(taken.entries), len(t.calls)
	if calls > 0 {
		b.trips = append(b.trips, t)
	}
	// If not all calls can be served in time, the newest go first. In order of arrival every call would be
	// answered too late, because every call would have waited for long. This is the case once a call has waited
	// for longer than waitPart, or for so long that its trip would not end in time.
	newestFirst := calls > 0 && now-t.calls[0].began > deadline-max(b.took.next, int64((1-waitPart)*float64(deadline)))
	if t.single = b.failed && calls > 1; t.single {
		// After a failure only one call is sent: the one that came last, because it has the most time left. If
		// Redis hangs, the other calls will not have been sent when their time is over, and so cannot have been
		// charged.
		newestFirst, calls = true, 1
	}
	t.takes = b.took.next
	b.mu.Unlock()

	if newestFirst {
		slices.Reverse(t.calls)
	}
	t.left = queue{calls: t.left.calls[:0], entries: taken.entries, large: taken.large}
	carried := b.addCalls(t, t.calls[:calls], now, most, passLarge && !t.single)
	if carried == len(t.calls) {
		return t
	}
	t.left.calls = append(t.left.calls, t.calls[calls:]...)
	clear(t.calls[carried:])
	t.calls = t.calls[:carried]
	if newestFirst {
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

// entriesPerTrip returns how many entries the next trip may carry if the given number wait. It is half of all entries,
// waiting or on other trips, if that is worth a trip, and at most MaxBatch. While Redis is slow there is one
// trip at a time, which carries as many as it can. The lock is held.
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

// run makes the trip, which started at a local time, and hands out the answers. It reports whether the trip
// still has its place.
func (b *Batcher) run(t *trip, started int64) (hasPlace bool) {
	done, err := b.hooks.Begin()
	if err != nil {
		b.endTrip(t)
		fail(t.calls, err)
		return true
	}
	ends := started + b.opt.Deadline.Microseconds()
	if t.leader != nil {
		ends = min(ends, t.leader.deadline)
	}
	ctx := newTripContext(ends)
	b.mu.Lock()
	t.entries, t.unmerged, t.ends, t.ctx, t.done = len(t.batch.runs), t.cargo.unmerged, ends, ctx, done
	if !t.full { // it carries all calls that the others left behind
		for _, other := range b.trips {
			other.full = false
		}
	}
	b.setReaper(ends)
	b.mu.Unlock()

	t.batch.finish()
	entries := t.batch.entries
	to := b.script.nodeOfAll(ctx, entries)
	for i := range t.batch.runs {
		run := &t.batch.runs[i]
		e := &entries[run.at]
		e.NotAfter = b.notAfter(to, e, run.deadline)
	}
	now := b.hooks.Now()
	replies, server, ended, err := b.send(ctx, to, entries)
	if !b.endTrip(t) {
		return !t.passedOn
	}
	b.tripEnded(t, ended, ended-started, server, err)
	if replies == nil {
		fail(t.calls, err)
		return true
	}
	b.handOut(t.calls, &t.batch, replies, now)
	return true
}

// isOfSlots reports whether the node of a Cluster that refused a command decides keys of other slots.
func isOfSlots(err error) bool { return IsMoving(err) || HasNoMaster(err) }

// tripEnded records a trip. This happens before its answers are handed out, so that a caller that has a
// decision finds its trip counted.
func (b *Batcher) tripEnded(t *trip, now, took, server int64, err error) {
	if err != nil && isOfSlots(err) {
		err = nil // Redis has answered; only the calls for some slots have no decision
	}
	b.mu.Lock()
	b.last = t.cargo
	b.failed = err != nil
	wasSlow, declined := b.slow, b.room.declined.Swap(0)
	b.slow = b.failed || server > b.slowFrom()
	if err == nil {
		b.distance.answered(now, server)
		b.delay = took - server
		// Trips of many processes queue up in front of a slow Redis, and how long one waits there varies. Entries
		// that come too late cost Redis almost as much as others. If many calls are turned away, there are enough
		// others to take their place.
		b.took.ended(now, took, wasSlow && b.slow && 2*declined >= int64(t.cargo.unmerged))
		if !t.single {
			b.room.ended(now, took, t.cargo.unmerged, t.full, b.opt.Deadline.Microseconds())
		}
	}
	b.mu.Unlock()
	t.done(b.failureOfRedis(err, took))
	b.hooks.Trip(len(t.calls), microseconds(took), err)
}

// failureOfRedis returns the error for which Redis is to blame, or nil. A time-out that is noticed late shows that this
// process was busy or paused, rather than that Redis is slow: the answer may have been waiting. A time-out
// while writing is not Redis's fault either, since written data waits in a buffer.
func (b *Batcher) failureOfRedis(err error, took int64) error {
	if !errors.Is(err, ErrNoAnswer) {
		return err
	}
	deadline := b.opt.Deadline.Microseconds()
	late := took - deadline
	answers := localTime()-b.lastAnswer.Load() < 4*deadline
	onTheWay, ok := errors.AsType[*net.OpError](err)
	if late > deadline/2 || late > deadline/8 && answers || ok && onTheWay.Op == "write" {
		return nil
	}
	return err
}

// notAfter returns the time on the node's clock after which an entry must not be charged. For a node that has
// not answered yet, it assumes the clock of the known node whose clock is furthest behind. At worst an entry
// then expires uncharged, and the reply shows the node's clock.
func (b *Batcher) notAfter(to *node, e *Entry, deadline int64) int64 {
	if b.opt.VirtualClock != nil || e.settlesHold() {
		return 0
	}
	if to != nil {
		if t := to.clocks.notAfter(e.redisKey(), deadline); t > 0 {
			return t
		}
	}
	return b.script.nodes.notAfter(deadline)
}

// send runs the script for entries. It returns the time that the server took, without this process's own
// delays, and the local time at which the reply was received. The error is that of the whole trip, or of a part
// of it.
func (b *Batcher) send(ctx context.Context, to *node, entries []Entry) (replies []Reply, server, received int64, err error) {
	clock := int64(0)
	if b.opt.VirtualClock != nil {
		clock = b.opt.VirtualClock()
	}
	sent := localTime()
	replies, err = b.script.run(ctx, to, entries, clock)
	received = localTime()
	if err != nil {
		return nil, received - sent, received, unanswered(err)
	}
	b.lastAnswer.Store(received)
	for i := range replies {
		if r := &replies[i]; r.Err != nil {
			r.Err = unanswered(r.Err)
			if err == nil || !isOfSlots(r.Err) {
				err = r.Err
			}
		} else if clock == 0 && r.Clock > 0 && to != nil && (server == 0 || to.clocks.bySlot) { // one server has one clock
			server = max(server, to.clocks.observe(entries[i].redisKey(), r.Clock, sent, received))
		}
	}
	if server == 0 {
		server = received - sent
	}
	return replies, server, received, err
}

// unanswered returns the error of a trip, or of a part of it, with time-outs turned into an [ErrNoAnswer].
func unanswered(err error) error {
	if KindOf(err) == Timeout && !errors.Is(err, ErrNoAnswer) {
		return fmt.Errorf("%w: %w", ErrNoAnswer, err)
	}
	return err
}

// abandon ends a trip whose goroutine ends before the calls are answered: a function of the program that the client
// or the logger has called has panicked or ended the goroutine. That is no failure of Redis, which may have made the
// decisions. abandon reports whether the trip still has its place.
func (b *Batcher) abandon(t *trip, leader *call) (hasPlace bool) {
	if leader != nil {
		leader.claim() // its caller is gone, and must not be elected again
	}
	b.mu.Lock()
	done := t.done
	if !slices.Contains(b.trips, t) { // it has ended, and its result is recorded
		done = nil
	}
	b.mu.Unlock()
	if !b.endTrip(t) {
		return !t.passedOn
	}
	fail(t.calls, errAbandoned)
	if done != nil {
		done(nil)
	}
	return true
}

// endTrip ends a trip. It returns false if the trip was given up.
func (b *Batcher) endTrip(t *trip) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.givenUp {
		if t.passedOn {
			b.stuck--
		}
		return false
	}
	b.remove(t)
	return true
}

func (b *Batcher) remove(t *trip) {
	b.trips = slices.DeleteFunc(b.trips, func(other *trip) bool { return other == t })
}

// handOut gives calls their parts of the replies.
func (b *Batcher) handOut(calls []*call, from *batch, replies []Reply, sent int64) {
	// Calls whose callers have left meanwhile were decided by other means: the units granted to them are not
	// reported to the observer.
	present, decisions := calls[:0], 0
	for _, c := range calls {
		if c.claim() {
			present = append(present, c)
			decisions += max(int(c.entry.count()), len(c.group))
		} else {
			from.subtract(c, replies)
		}
	}
	b.answered.Add(int64(decisions))
	for i := range replies {
		if e := &from.entries[i]; len(replies) > 1 && e.Rule.observer != nil {
			e.Rule.observer.Answering(e)
		}
	}
	for i := range replies {
		e, r := &from.entries[i], &replies[i]
		if r.apart == nil {
			b.notifyObserver(e, r, sent)
		}
		for j := range r.each() {
			one := e.alone(j)
			b.notifyObserver(&one, &r.each()[j], sent)
		}
	}
	var again []*call
	for _, c := range present {
		if !b.answer(c, from, replies) {
			again = append(again, c)
		}
	}
	b.requeue(again)
}

// notifyObserver notifies the entry's observer of a reply.
func (b *Batcher) notifyObserver(e *Entry, r *Reply, sent int64) {
	if observer := e.Rule.observer; observer != nil && r.Err == nil && r.Status != Expired && r.Status != Unreadable {
		observer.Answered(b.hooks.Shard, e, r, sent)
	}
}

// answer gives a claimed call its part of the replies. It returns false for a call that expired although it is
// not late, because Redis's clock is further ahead than was known. Nothing was charged, and the reply has
// corrected the estimate of the clock, so the call may be sent once more.
func (b *Batcher) answer(c *call, from *batch, replies []Reply) bool {
	own := from.answer(c, replies)
	err := c.failure(own)
	if err == errLate {
		if !c.resent && localTime() < c.deadline {
			c.resent = true
			return false
		}
		if late := c.late(); late != errNotSent { // it is claimed, and so counts as not sent
			err = late
		}
	}
	c.answer(own, err)
	return true
}

// failure returns the error of a call with these replies, if it failed as a whole; errLate if it expired.
// Independent entries fail separately, because others have been charged (law 3): the call fails only if all of them
// have expired.
func (c *call) failure(own []Reply) (err error) {
	independent := c.group != nil && c.group[0].Group == 0
	expired := 0
	for i := range own {
		r := &own[i]
		failed := r.Err
		switch {
		case failed != nil:
		case r.Status == Unreadable:
			failed = fmt.Errorf("%w: %s", ErrUnreadable, c.described(i))
		case r.Status == Expired:
			failed = errLate
			expired++
		}
		if independent {
			r.Err = failed
		} else if failed != nil && failed != errLate {
			err = failed
		}
	}
	if err == nil && expired > 0 && (expired == len(own) || !independent) {
		return errLate
	}
	return err
}

// requeue puts calls back at the front of the queue. The goroutine that calls it has a trip's place, and checks
// the queue before it gives up the place.
func (b *Batcher) requeue(calls []*call) {
	if calls == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	first := queue{}
	for _, c := range calls {
		c.state.Store(callWaiting)
		c.mayLead = false // its caller may have been elected already without knowing it yet
		b.setReaper(c.due(c.began))
		first.add(c)
	}
	if b.closed {
		fail(calls, limit.ErrClosed)
		return
	}
	b.queue.putFirst(first)
}
