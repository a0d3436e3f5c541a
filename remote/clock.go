package remote

import (
	"sync"
	"sync/atomic"
	"time"
)

// processStart is the zero of local time, on the monotonic clock. It is a century before the process started,
// because time in a bubble of testing/synctest begins in 2000, and a local time of 0 means "never" or "not
// set".
var processStart = time.Now().Add(-100 * 365 * 24 * time.Hour) // AddDate would drop the monotonic clock

// localTime returns the time on this process's monotonic clock, in microseconds.
func localTime() int64 { return time.Since(processStart).Microseconds() }

// localTimeOf converts t to local time. If t has a monotonic reading, as the deadline of a context usually has,
// it reads no clock.
func localTimeOf(t time.Time) int64 {
	if t == t.Round(0) { // without such a reading
		return localTime() + time.Until(t).Microseconds()
	}
	return t.Sub(processStart).Microseconds()
}

// clocks estimates the clock of a node: how far it is ahead of this process's clock. Behind a client of an
// unknown type there may be several servers, so their clocks are kept by slot.
//
// A reply's clock was read at some moment between sending and receiving. So the server's clock is ahead by at
// least (server - received), and by at most (server - sent). A not-after uses the lower bound, so an entry that
// the server accepts is certainly in time (law 4). The not-after is early by at most the time of the reply's
// way back, plus the possible drift of the clocks since.
type clocks struct {
	bySlot bool
	only   atomic.Pointer[bound] // of the only server, unless bySlot

	mu     sync.Mutex // guards the rest
	ofSlot map[uint16]*bound
}

// bound is immutable.
type bound struct {
	ahead int64 // µs, lower bound
	since int64 // local time at which it was found
}

// driftShare is the number of µs in which two clocks drift apart by less than 1 µs (200 ppm). A
// quartz clock drifts by less than half of that.
const driftShare = 5000

// at returns the bound at a local time. It decreases until a better bound is found.
func (b *bound) at(local int64) int64 {
	return b.ahead - (max(0, local-b.since)+driftShare-1)/driftShare
}

func newClocks(bySlot bool) *clocks {
	return &clocks{bySlot: bySlot, ofSlot: make(map[uint16]*bound)}
}

// observe updates the bound from a reply about key: from the server's clock, and the local times at which the
// request was sent and the reply received. It returns how long the request took until the server ran it, plus
// the shortest known time of a reply's way back. This part of the round trip depends on the server, and not on
// how busy this process is.
func (c *clocks) observe(key string, server, sent, received int64) (took int64) {
	if !c.bySlot {
		better, took := c.only.Load().observe(server, sent, received)
		if better != nil {
			c.only.Store(better) // if two goroutines store at the same moment, either bound will do
		}
		return took
	}
	slot := keySlot(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	better, took := c.ofSlot[slot].observe(server, sent, received)
	if better != nil {
		c.ofSlot[slot] = better
	}
	return took
}

// observe returns a better bound if the reply gives one, and otherwise nil; took is that of clocks.observe. b
// is nil if nothing is known.
func (b *bound) observe(server, sent, received int64) (better *bound, took int64) {
	atLeast, atMost := server-received, server-sent
	if b != nil {
		if at := b.at(received); atLeast <= at && at <= atMost { // otherwise the clock has stepped back
			return nil, atMost - at
		}
	}
	return &bound{ahead: atLeast, since: received}, received - sent
}

// notAfter converts a local deadline to the clock of the server that holds key. If that server has not answered
// yet, it uses the clock that is furthest behind. It returns 0 if no clock is known.
func (c *clocks) notAfter(key string, deadline int64) int64 {
	b := c.only.Load()
	if c.bySlot {
		slot := keySlot(key)
		c.mu.Lock()
		defer c.mu.Unlock()
		if b = c.ofSlot[slot]; b == nil {
			for _, other := range c.ofSlot {
				if b == nil || other.at(deadline) < b.at(deadline) {
					b = other
				}
			}
		}
	}
	if b == nil {
		return 0
	}
	return deadline + b.at(deadline)
}
