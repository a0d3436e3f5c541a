package remote

import (
	"context"
	"sync"
	"sync/atomic"
)

// call is what one caller waits for: a decision, or several that go together.
type call struct {
	ctx   context.Context
	entry Entry
	group []Entry // several, instead of entry

	asked, deadline int64 // local time
	resent          bool
	sent            atomic.Bool

	// Whoever claims the call answers it: a trip or the reaper.
	claimed atomic.Bool
	reply   Reply   // reply, replies and err may be read once done was received
	replies []Reply // of a group
	err     error
	done    chan struct{} // holds one

	// Where a trip's answer is to be found, see batch: a run, and the place in its
	// count or, of a group, 0.
	run   int32
	place int64
}

var calls = sync.Pool{New: func() any { return &call{done: make(chan struct{}, 1)} }}

func newCall(ctx context.Context, now, deadline int64) *call {
	c := calls.Get().(*call)
	c.ctx, c.asked, c.deadline = ctx, now, deadline
	return c
}

// release makes the call available to others. Only the caller may, and only after a
// trip has answered: no one else knows the call then.
func (c *call) release() {
	done := c.done
	*c = call{done: done}
	calls.Put(c)
}

// claim reports whether the caller of it is the one to answer.
func (c *call) claim() bool { return !c.claimed.Swap(true) }

// fail ends the call with an error, unless it was answered already.
func (c *call) fail(err error) {
	if c.claim() {
		c.err = err
		c.done <- struct{}{}
	}
}

func fail(calls []*call, err error) {
	for _, c := range calls {
		c.fail(err)
	}
}
