package remote

// The reaper ends what has reached its deadline: calls that wait, sent or not, and
// trips. One timer does that for all callers of the batcher; it is set for the
// earliest deadline when there is any, so it fires about once per deadline however
// many calls there are. (A caller whose context ends earlier than the batcher's own
// deadline notices that itself.)

// setReaper sets the timer, unless it is set already: whoever came before has the
// earlier deadline. The lock is held.
func (b *Batcher) setReaper(in int64) {
	if !b.reaping && !b.closed {
		b.reaping = true
		b.reaper.Reset(microseconds(in))
	}
}

// reap runs in a goroutine of its own, when the timer fires.
func (b *Batcher) reap() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reaping = false
	now := localTime()
	next := int64(0)
	due := func(deadline int64) bool {
		if deadline <= now {
			return true
		}
		if next == 0 || deadline < next {
			next = deadline
		}
		return false
	}
	reap := func(calls []*call) {
		for _, c := range calls {
			if c != nil && !c.claimed.Load() && due(c.deadline) {
				c.fail(b.late(c))
			}
		}
	}
	reap(b.queue)
	for i := len(b.trips) - 1; i >= 0; i-- { // giving up takes one out
		t := b.trips[i]
		if t.ends == 0 {
			due(now + 1000) // it is being loaded: look again
			continue
		}
		reap(t.calls)
		if due(t.ends) {
			b.giveUp(t)
		}
	}
	if next > 0 {
		b.setReaper(next - now)
	}
}

// maxStuck bounds the goroutines that wait inside a client that does not honour
// deadlines.
const maxStuck = 32

// giveUp ends a trip that takes too long. A client may be set up in a way that does
// not honour the deadline: by default go-redis waits for seconds. So the place goes to
// another goroutine, and the one that made the trip is left behind until the client
// returns. Only so many may be left behind; beyond that, places are lost until some
// return. The lock is held.
func (b *Batcher) giveUp(t *trip) {
	b.remove(t)
	t.givenUp = true
	if b.stuck < maxStuck {
		b.stuck++
		t.passedOn = true
		b.running.Go(b.travel)
	}
	done, decisions := t.done, len(t.calls)
	b.running.Go(func() { // the hooks may take locks of their own
		done(ErrNoAnswer)
		b.hooks.Trip(decisions, b.opt.Deadline, ErrNoAnswer)
	})
}
