package remote

import (
	"sync"
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
// certainly in time (law 4). It is early by at most the reply's way back.
type clocks struct {
	bySlot bool

	mu    sync.Mutex
	ahead map[uint16]*bound
}

type bound struct {
	ahead int64 // µs, lower bound
	since int64 // local time it was found
}

// boundLife is how long a bound is kept if no better one comes: clocks drift.
const boundLife = 10 * 1_000_000

func newClocks(bySlot bool) *clocks {
	return &clocks{bySlot: bySlot, ahead: make(map[uint16]*bound)}
}

func (c *clocks) slot(key string) uint16 {
	if !c.bySlot {
		return 0
	}
	return keySlot(key)
}

// observe learns from a reply about key: the server's clock, and when the
// request was sent and the reply received, in local time.
func (c *clocks) observe(key string, server, sent, received int64) {
	atLeast, atMost := server-received, server-sent
	slot := c.slot(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.ahead[slot]
	if b == nil {
		b = &bound{ahead: atLeast - 1}
		c.ahead[slot] = b
	}
	stepped := b.ahead > atMost
	if atLeast > b.ahead || stepped || received-b.since > boundLife {
		*b = bound{ahead: atLeast, since: received}
	}
}

// notAfter is a local deadline on the clock of the server that holds key. Of a
// Cluster node not heard of yet, the clock that is furthest behind is assumed:
// the worst that can come of it is an entry that expires uncharged, and teaches
// the node's clock. 0 if nothing is known at all.
func (c *clocks) notAfter(key string, deadline int64) int64 {
	slot := c.slot(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.ahead[slot]; b != nil {
		return deadline + b.ahead
	}
	notAfter := int64(0)
	for _, b := range c.ahead {
		if t := deadline + b.ahead; notAfter == 0 || t < notAfter {
			notAfter = t
		}
	}
	return notAfter
}
