package remote

import (
	"math"
	"slices"
	"time"
)

// The reaper ends calls, sent or not, whose deadline has passed or whose context was canceled, and trips that
// take too long. One timer does that for all callers of the batcher, so that each caller waits only for its
// answer. A timer for each caller, or waiting for each caller's context, would cost more than all the rest of a
// decision.

const (
	// lookEvery is how often contexts are checked. Each check wakes up a process that is otherwise idle.
	// Checking every 5 ms, which is as often as answers arrive, cost a fleet half of its decisions.
	lookEvery = 25 * time.Millisecond
	// reapEvery is the least time between two rounds, each of which checks all calls. Under overload every call
	// has a different deadline.
	reapEvery = time.Millisecond
	// reapPart is the pause after a round, as a multiple of the round's duration. The pause is never longer
	// than lookEvery, because a round may have taken long only because the process stood still.
	reapPart = 4
	// A round that comes late by more than 1/lateRoundPart of the deadline shows that this process stood still, for
	// instance because its container had used up its CPU limit. Answers may have come in time that nobody has read
	// yet. So if a trip is in flight, nothing ends in that round, and the next one comes after as long again.
	lateRoundPart = 8
)

// due returns when the reaper must look at the call, if it did so last at the given local time.
func (c *call) due(looked int64) int64 {
	if c.ctx.Done() == nil {
		return c.deadline
	}
	return min(c.deadline, looked+lookEvery.Microseconds())
}

// setReaper sets the timer, unless it already fires in time. The given time may have passed; the round is then due now,
// and not late. The lock is held.
func (b *Batcher) setReaper(at int64) {
	if b.reapAt > 0 && b.reapAt <= at {
		return
	}
	now := localTime()
	b.reapAt = max(at, now, b.reaped+reapEvery.Microseconds())
	b.reaper.Reset(microseconds(b.reapAt - now))
}

// reap runs in its own goroutine, when the timer fires.
func (b *Batcher) reap() {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := localTime()
	spare := b.opt.Deadline.Microseconds() / lateRoundPart
	if late := b.reapAt > 0 && now-b.reapAt > spare; late && !b.spared && len(b.trips) > 0 {
		b.spared, b.reapAt = true, 0
		b.setReaper(now + spare)
		return
	}
	b.spared, b.reapAt = false, 0
	next := int64(math.MaxInt64)
	reap := func(calls []*call, leader *call) {
		for _, c := range calls {
			if state := c.state.Load(); state == callClaimed || state == callLeading || c == leader && c.deadline > now {
				continue // its caller ends the trip in time
			}
			switch {
			case c.deadline <= now:
				c.fail(c.late())
			case c.ctx.Err() == nil:
				next = min(next, c.due(now))
			case c.deadline <= localTime(): // it passed during this round, and with it the deadline of the context
				c.fail(c.late())
			default:
				c.fail(c.ended())
			}
		}
	}
	reap(b.queue.calls, nil)
	b.queue.dropClaimed()
	for _, t := range slices.Backward(b.trips) { // giveUp removes one
		switch {
		case t.ends == 0: // being loaded with calls whose time may soon be over: check again
			next = min(next, now+reapEvery.Microseconds())
		case t.ends <= now:
			reap(t.calls, t.leader)
			t.ctx.end()
			if t.leader == nil {
				b.giveUp(t, now)
			}
		default:
			reap(t.calls, t.leader)
			next = min(next, t.ends)
		}
	}
	b.reaped = localTime()
	b.reaped += min(reapPart*(b.reaped-now), lookEvery.Microseconds())
	if next < math.MaxInt64 {
		b.setReaper(next)
	}
}

// maxStuck bounds the number of goroutines that wait inside a client that does not honor deadlines.
const maxStuck = 32

// giveUp ends a trip that takes too long. A client may be configured not to honor the deadline: by default
// go-redis waits for seconds. So the trip's place goes to another goroutine, and the goroutine that made the
// trip is left behind until the client returns. At most maxStuck goroutines may be left behind; beyond that,
// places are lost until some return. The lock is held.
func (b *Batcher) giveUp(t *trip, now int64) {
	b.remove(t)
	t.givenUp = true
	for _, c := range t.calls { // a call that came just after the trip had started has a little time left
		c.fail(c.late())
	}
	b.failed, b.slow = true, true
	if b.stuck < maxStuck {
		b.stuck++
		t.passedOn = true
		b.inFlight--
		b.startNext()
	}
	done, decisions, took := t.done, len(t.calls), now-t.ends+b.opt.Deadline.Microseconds()
	b.running.Go(func() { // the hooks may take locks of their own
		done(b.failureOfRedis(ErrNoAnswer, took, b.opt.Deadline))
		b.hooks.Trip(decisions, microseconds(took), ErrNoAnswer)
	})
}
