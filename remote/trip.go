package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"

	"github.com/tierlimit/tierlimit/limit"
)

// trip carries calls to Redis and back.
type trip struct {
	calls []*call
	batch batch
	spare []*call // an array for the queue

	// Guarded by the batcher's lock:
	ends     int64 // local time at which the trip is given up; 0 while it is loaded
	done     func(error)
	givenUp  bool
	passedOn bool // its place, when it was given up
}

// travel makes trips until nobody waits.
func (b *Batcher) travel() {
	t := &trip{}
	for b.load(t) && b.run(t) {
		b.awaitCompany(len(t.calls))
	}
}

// awaitCompany lets the callers run who have just been answered: those who ask again
// at once ride together on the next trip, and not a few on each of many.
func (b *Batcher) awaitCompany(answered int) {
	if answered < company {
		return
	}
	for waiting, before := 0, -1; waiting > before; {
		before = waiting
		runtime.Gosched()
		b.mu.Lock()
		waiting = len(b.queue)
		b.mu.Unlock()
	}
}

const company = 16

// load takes waiting calls on board, first come, first served. If there are none, it
// gives up the place and returns false.
func (b *Batcher) load(t *trip) bool {
	for {
		// The whole queue is taken, and what does not fit goes back to its front: so the
		// lock is held for a moment only.
		b.mu.Lock()
		t.calls, b.queue = b.queue, t.calls[:0]
		if len(t.calls) == 0 {
			b.inFlight--
			b.mu.Unlock()
			return false
		}
		t.ends, t.done = 0, nil
		b.trips = append(b.trips, t)
		most, share := b.pace.entries, b.pace.share(len(t.calls), b.riding(t), b.inFlight)
		b.mu.Unlock()

		boarded, seen := b.board(t, most, share)
		if seen < share {
			b.lastFull.Store(localTime())
		}
		b.mu.Lock()
		if rest := t.calls[seen:]; len(rest) > 0 {
			t.spare = append(append(t.spare[:0], rest...), b.queue...)
			b.queue, t.spare = t.spare, b.queue[:0]
			if b.closed { // it fails who waits; those were not there
				fail(b.queue, limit.ErrClosed)
				b.queue = nil
			} else if (seen < share || b.inFlight == 1) && b.pace.mayStart(b.inFlight, localTime(), true) {
				b.inFlight++
				b.running.Go(b.travel)
			}
		}
		clear(t.calls[boarded:])
		t.calls = t.calls[:boarded]
		if boarded == 0 {
			b.remove(t)
		}
		b.mu.Unlock()
		if boarded > 0 {
			return true
		}
	}
}

// riding is how many calls are on other trips. The lock is held.
func (b *Batcher) riding(t *trip) (calls int) {
	for _, other := range b.trips {
		if other != t {
			calls += len(other.calls)
		}
	}
	return calls
}

// board puts calls into the batch as long as they fit, and to the front of t.calls: up to
// most entries, of up to share calls.
func (b *Batcher) board(t *trip, most, share int) (boarded, seen int) {
	t.batch.reset()
	now, spread := localTime(), b.opt.Deadline.Microseconds()/4
	for _, c := range t.calls[:share] {
		switch {
		case c.claimed(): // its caller has left
		case c.deadline <= now:
			c.fail(b.late(c))
		case t.batch.add(c, most, b.opt.MaxWork, spread):
			// If its caller leaves just now, it rides along and is not answered.
			c.send()
			t.calls[boarded] = c
			boarded++
		default:
			return boarded, seen
		}
		seen++
	}
	return boarded, seen
}

// run makes the trip and hands out the answers. It reports whether the trip still has
// its place.
func (b *Batcher) run(t *trip) (hasPlace bool) {
	done, err := b.hooks.Begin()
	if err != nil {
		b.land(t)
		fail(t.calls, err)
		return true
	}
	started := localTime()
	b.mu.Lock()
	t.ends, t.done = started+b.opt.Deadline.Microseconds(), done
	b.setReaperAt(t.ends)
	b.mu.Unlock()

	t.batch.finish(b.notAfter)
	now := b.hooks.Now()
	replies, server, err := b.send(b.deadlines.context(started), t.batch.entries)
	if !b.land(t) {
		return !t.passedOn
	}
	b.tripEnded(len(t.batch.entries), len(t.calls), started, server, err, done)
	if replies == nil {
		fail(t.calls, err)
		return true
	}
	b.handOut(t.calls, &t.batch, replies, now)
	return true
}

// tripEnded tells of a trip, before anyone learns of its answers: who has a decision finds
// its trip counted.
func (b *Batcher) tripEnded(entries, calls int, started, server int64, err error, done func(error)) {
	took := localTime() - started
	b.mu.Lock()
	if err == nil {
		b.pace.ended(took, server, entries, calls)
	} else {
		b.pace.failed()
	}
	b.mu.Unlock()
	done(b.blame(err, took))
	b.hooks.Trip(calls, microseconds(took), err)
}

// blame is what to blame Redis for. A time-out that is noticed late says that this process
// has no time, or stood still, and little of Redis: its answer may have been waiting. So
// does one of writing: what is written waits in a buffer, if it must.
func (b *Batcher) blame(err error, took int64) error {
	if !errors.Is(err, ErrNoAnswer) {
		return err
	}
	deadline := b.opt.Deadline.Microseconds()
	late := took - deadline
	answers := localTime()-b.lastAnswer.Load() < 4*deadline
	var onTheWay *net.OpError
	if late > deadline/2 || late > deadline/8 && answers || errors.As(err, &onTheWay) && onTheWay.Op == "write" {
		return nil
	}
	return err
}

// travelAlone makes the trip of a call that a caller makes itself.
func (b *Batcher) travelAlone(c *call) {
	defer b.running.Done()
	b.runAlone(c)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) > 0 {
		b.running.Go(b.travel) // others have come: the place is theirs
		return
	}
	b.inFlight--
}

func (b *Batcher) runAlone(c *call) {
	done, err := b.hooks.Begin()
	if err != nil {
		c.fail(err)
		return
	}
	c.send()
	now, started := b.hooks.Now(), localTime()
	c.entry.NotAfter = b.notAfter(&c.entry, c.deadline)
	entries := []Entry{c.entry}
	replies, server, err := b.send(b.deadlines.context(started), entries)
	b.tripEnded(1, 1, started, server, err, done)
	if replies == nil {
		c.fail(err)
		return
	}
	alone := batch{entries: entries, runs: onlyRun}
	b.handOut([]*call{c}, &alone, replies, now)
}

var onlyRun = make([]entryRun, 1) // of who travels alone; only read

// notAfter is when an entry must no longer be charged, on its server's clock.
func (b *Batcher) notAfter(e *Entry, deadline int64) int64 {
	if b.opt.VirtualClock != nil {
		return 0
	}
	return b.clocks.notAfter(e.redisKey(), deadline)
}

// send runs the script for entries, and says how long the server took, without what this
// process did. The error is that of the whole trip, or the first of a part of it.
func (b *Batcher) send(ctx context.Context, entries []Entry) (replies []Reply, server int64, err error) {
	clock := int64(0)
	if b.opt.VirtualClock != nil {
		clock = b.opt.VirtualClock()
	}
	sent := localTime()
	replies, err = b.script.Run(ctx, entries, clock)
	received := localTime()
	if err != nil {
		if KindOf(err) == Timeout {
			err = fmt.Errorf("%w: %w", ErrNoAnswer, err)
		}
		return nil, received - sent, err
	}
	if clock != 0 {
		server = received - sent
	}
	b.lastAnswer.Store(received)
	for i := range replies {
		if r := &replies[i]; r.Err != nil {
			err = r.Err
		} else if clock == 0 && (i == 0 || b.clocks.bySlot) { // one server has one clock
			server = max(server, b.clocks.observe(entries[i].redisKey(), r.Clock, sent, received))
		}
	}
	return replies, server, err
}

// land ends a trip, unless it was given up.
func (b *Batcher) land(t *trip) bool {
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

// errExpired: an entry reached Redis after its not-after, and charged nothing.
var errExpired = errors.New("tierlimit: expired")

// handOut gives calls their parts of the replies.
func (b *Batcher) handOut(calls []*call, from *batch, replies []Reply, sent int64) {
	// Who has left meanwhile was decided elsewhere: what it was granted here is not
	// told again.
	present, decisions := calls[:0], 0
	for _, c := range calls {
		if c.claim() {
			present = append(present, c)
			decisions += max(1, len(c.group))
		} else {
			from.disown(c, replies)
		}
	}
	b.answered.Add(int64(decisions))
	for i := range replies {
		if r := &replies[i]; r.Err == nil && r.Status != Expired && r.Status != Unreadable {
			b.hooks.Answered(&from.entries[i], r, sent)
		}
	}
	var again []*call
	for _, c := range present {
		if !b.answer(c, from, replies) {
			again = append(again, c)
		}
	}
	b.again(again)
}

// answer gives a claimed call its part of the replies. It returns false for one that
// expired although it is not late: Redis's clock is further ahead than was known.
// Nothing was charged, and the reply has told the right time: it may go once more.
func (b *Batcher) answer(c *call, from *batch, replies []Reply) bool {
	own := from.answer(c, replies)
	var err error
	for i := range own {
		r := &own[i]
		switch {
		case r.Err != nil:
			err = r.Err
		case r.Status == Unreadable && (err == nil || errors.Is(err, errExpired)):
			err = fmt.Errorf("%w: %q", ErrUnreadable, c.redisKey(i))
		case r.Status == Expired && err == nil:
			err = errExpired
		}
	}
	if err == errExpired {
		if !c.resent && localTime() < c.deadline {
			c.resent = true
			return false
		}
		err = errLate
	}
	c.answer(own, err)
	return true
}

// again puts calls to the front of the queue. Who calls it has a place, and looks
// into the queue before giving it up.
func (b *Batcher) again(calls []*call) {
	if calls == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range calls {
		c.state.Store(callWaiting)
	}
	if b.closed {
		fail(calls, limit.ErrClosed)
		return
	}
	b.queue = append(calls, b.queue...)
	for _, c := range calls {
		b.setReaper(c)
	}
}
