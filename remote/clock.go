package remote

import (
	"sync"
	"sync/atomic"
	"time"
)

// processStart is where local time is counted from, on the monotonic clock.
var processStart = time.Now()

// localTime is microseconds on this process's monotonic clock.
func localTime() int64 { return time.Since(processStart).Microseconds() }

// clocks is what is known of the servers' clocks: how far each is ahead of this
// process's. On a Cluster every node has its own, known here by slot.
//
// A reply's clock was read at some moment between sending and receiving, so it
// gives bounds: ahead by at least (server - received), by at most (server -
// sent). A not-after uses the lower bound: what the server then lets pass was
// certainly in time (law 4). It is early by at most the reply's way back, and by
// what clocks may have drifted apart since.
type clocks struct {
	bySlot bool
	// Of the only server there is. It is read for each entry, so without a lock.
	only atomic.Pointer[bound]

	mu    sync.Mutex // guards the rest
	ahead map[uint16]bound
}

// bound is immutable.

type bound struct {
	ahead int64 // µs, lower bound
	since int64 // local time it was found
}

// driftShare: two clocks drift apart by less than 1 µs in this many, 200 ppm. A
// quartz drifts by less than half of that.
const driftShare = 5000

// at is the bound at a local time: it falls until a better one is found.
func (b *bound) at(local int64) int64 {
	return b.ahead - (max(0, local-b.since)+driftShare-1)/driftShare
}

func newClocks(bySlot bool) *clocks {
	return &clocks{bySlot: bySlot, ahead: make(map[uint16]bound)}
}

// observe learns from a reply about key: the server's clock, and when the
// request was sent and the reply received, in local time. It returns how long the
// request was on its way until it was the server's turn to run it, and the fastest reply
// known on its way back: the part of the time that says something of the server, and
// nothing of how busy this process is.
func (c *clocks) observe(key string, server, sent, received int64) (took int64) {
	if !c.bySlot {
		b, took := c.only.Load().observe(server, sent, received)
		if b != nil {
			c.only.Store(b) // of two that are learnt at the same moment either will do
		}
		return took
	}
	slot := keySlot(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	var known *bound
	if b, ok := c.ahead[slot]; ok {
		known = &b
	}
	better, took := known.observe(server, sent, received)
	if better != nil {
		c.ahead[slot] = *better
	}
	return took
}

// observe returns a better bound, if the reply has one, and what observe of all clocks does.
// b is nil if nothing is known.
func (b *bound) observe(server, sent, received int64) (better *bound, took int64) {
	atLeast, atMost := server-received, server-sent
	if b == nil {
		return &bound{ahead: atLeast, since: received}, received - sent
	}
	if at := b.at(received); atLeast <= at && at <= atMost { // or else the clock has stepped back
		return nil, atMost - at
	}
	return &bound{ahead: atLeast, since: received}, received - sent
}

// notAfter is a local deadline on the clock of the server that holds key. Of a
// Cluster node not heard of yet, the clock that is furthest behind is assumed:
// the worst that can come of it is an entry that expires uncharged, and teaches
// the node's clock. 0 if nothing is known at all.
func (c *clocks) notAfter(key string, deadline int64) int64 {
	if !c.bySlot {
		if b := c.only.Load(); b != nil {
			return deadline + b.at(deadline)
		}
		return 0
	}
	slot := keySlot(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	if b, ok := c.ahead[slot]; ok {
		return deadline + b.at(deadline)
	}
	notAfter := int64(0)
	for _, b := range c.ahead {
		if t := deadline + b.at(deadline); notAfter == 0 || t < notAfter {
			notAfter = t
		}
	}
	return notAfter
}
