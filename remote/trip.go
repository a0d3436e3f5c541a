package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"
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
	within := microseconds(t.ends - (now - took))
	b.failed = err != nil && !b.hadLittleTime(err, within)
	wasSlow, turnedAway := b.slow, b.room.turnedAway.Swap(0)
	b.slow = b.failed || server > b.slowFrom()
	if err == nil {
		b.distance.answered(now, server)
		b.delay = took - server
	}
	if err == nil && took <= b.opt.Deadline.Microseconds() { // otherwise this process stood still, not Redis
		// Trips of many processes queue up in front of a slow Redis, and how long one waits there varies. Entries
		// that come too late cost Redis almost as much as others. If many calls are turned away, there are enough
		// others to take their place.
		b.took.ended(now, took, wasSlow && b.slow && 2*turnedAway >= int64(t.cargo.unmerged))
		if !t.single {
			b.room.ended(now, took, t.cargo.unmerged, t.full, b.opt.Deadline.Microseconds())
		}
	}
	b.mu.Unlock()
	t.done(b.failureOfRedis(err, took, within))
	b.hooks.Trip(len(t.calls), microseconds(took), err)
}

// failureOfRedis returns the error for which Redis is to blame, or nil. within is the time that the trip had. A time-out
// that is noticed late shows that this process was busy or paused, rather than that Redis is slow: the answer may have
// been waiting. A time-out while writing is not Redis's fault either, since written data waits in a buffer.
func (b *Batcher) failureOfRedis(err error, took int64, within time.Duration) error {
	if !errors.Is(err, ErrNoAnswer) {
		return err
	}
	if b.hadLittleTime(err, within) {
		return nil
	}
	deadline := b.opt.Deadline.Microseconds()
	late := took - within.Microseconds()
	answers := localTime()-b.lastAnswer.Load() < 4*deadline
	onTheWay, ok := errors.AsType[*net.OpError](err)
	if late > deadline/2 || late > deadline/8 && answers || ok && onTheWay.Op == "write" {
		return nil
	}
	return err
}

// hadLittleTime reports whether a trip that ended with a time-out had clearly less time than the deadline, for instance
// because its leader had waited, and Redis answered another trip lately. That is a sign of a slow Redis, and not of a lost
// one.
func (b *Batcher) hadLittleTime(err error, within time.Duration) bool {
	deadline := b.opt.Deadline
	return errors.Is(err, ErrNoAnswer) && within < deadline-deadline/8 && microseconds(localTime()-b.lastAnswer.Load()) < deadline
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
func (b *Batcher) abandon(t *trip) (hasPlace bool) {
	if t.leader != nil {
		t.leader.claim() // its caller is gone, and must not be elected again
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
