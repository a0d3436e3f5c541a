package remote

import (
	"context"
	"sync"
	"sync/atomic"
)

// call is what one caller waits for: a decision, or several that go together. What a trip
// needs of it comes first: it is in the caller's core's memory, and fetching that is most
// of what a trip does for a call.
type call struct {
	done            chan struct{} // what its caller waits for: being elected, being answered
	asked, deadline int64         // local time
	state           atomic.Uint32 // see below
	elected         bool          // its caller is to lead the next trip; read once done was received
	mayLead         bool          // its caller may lead: it has as much time as the limiter gives
	hurried         bool          // its caller's own context ends long before the limiter's deadline
	short           bool          // it was given less time than the limiter's deadline, see DecideBy
	resent          bool
	work            int64 // units that the script writes one by one for it

	// Where a trip's answer is to be found, see batch: a run, and the place in its
	// count or, of a group, 0.
	run   int32
	place int64

	// What was answered; may be read once done was received. The replies are the trip's,
	// which calls of the same entry share.
	replies []Reply
	err     error

	entry Entry
	group []Entry // several, instead of entry
	ctx   context.Context
}

// Whoever claims a call answers it: a trip or the reaper.
const (
	callWaiting = iota
	callLeading // its caller makes a trip, and so need not be told of its deadline
	callSent    // it is on a trip
	callClaimed
)

// A call is told twice at most before its caller looks: that it is elected, and its answer.
var calls = sync.Pool{New: func() any { return &call{done: make(chan struct{}, 2)} }}

// newCall is the call for one entry.
func newCall(ctx context.Context, e Entry) *call {
	c := calls.Get().(*call)
	c.ctx, c.entry, c.work = ctx, e, e.work()
	return c
}

// newGroupCall is the call for several entries that go together.
func newGroupCall(ctx context.Context, group []Entry) *call {
	c := calls.Get().(*call)
	c.ctx, c.group = ctx, group
	for i := range group {
		c.work += group[i].work()
	}
	return c
}

// release makes the call available to others. Only the caller may, and only after a
// trip has answered: no one else knows the call then.
func (c *call) release() {
	done := c.done
	*c = call{done: done}
	calls.Put(c)
}

// described is what errors say of the i-th of the call's entries.
func (c *call) described(i int) string {
	if c.group != nil {
		return c.group[i].described()
	}
	return c.entry.described()
}

// lead says that the call's caller makes the next trip. It reports false for one that
// cannot, or whose caller has left.
func (c *call) lead() bool { return c.mayLead && c.state.CompareAndSwap(callWaiting, callLeading) }

// follow says that its caller, who has led a trip, waits like others again. It reports false
// for a call that was on that trip.
func (c *call) follow() bool { return c.state.CompareAndSwap(callLeading, callWaiting) }

// send says that the call is on a trip, unless its caller has left.
func (c *call) send() {
	if !c.state.CompareAndSwap(callWaiting, callSent) {
		c.state.CompareAndSwap(callLeading, callSent)
	}
}

// claim reports whether the caller of it is the one to answer.
func (c *call) claim() bool { return c.state.Swap(callClaimed) != callClaimed }

func (c *call) claimed() bool { return c.state.Load() == callClaimed }

// answer ends a claimed call.
func (c *call) answer(replies []Reply, err error) {
	c.replies, c.err = replies, err
	c.done <- struct{}{}
}

// fail ends the call with an error, unless it was answered already.
func (c *call) fail(err error) {
	if c.claim() {
		c.answer(nil, err)
	}
}

func fail(calls []*call, err error) {
	for _, c := range calls {
		c.fail(err)
	}
}
