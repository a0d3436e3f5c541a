package remote

import (
	"fmt"

	"github.com/tierlimit/tierlimit/limit"
)

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
