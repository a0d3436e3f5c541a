package remote

import (
	"context"
	"sync"
	"sync/atomic"
)

// call is the request of one caller, who waits for it: for one decision, or for several that belong together.
// The fields that a trip needs come first. They are in the cache of the caller's core, and fetching them is
// most of a trip's work for a call.
type call struct {
	done            chan struct{} // signals its caller: it was elected, or answered
	began, deadline int64         // local time of the call, and by which it must be answered
	state           atomic.Uint32 // see below
	elected         bool          // its caller was elected to lead the next trip; read only after receiving from done
	mayLead         bool          // its caller may lead: it has as much time as the limiter gives
	hurried         bool          // its caller's own context ends long before the limiter's deadline
	short           bool          // it has less time than the limiter's deadline, see DecideBy
	ownTime         bool          // the program set that shorter time
	resent          bool
	work            int64 // units that the script writes one by one for it

	// The place of the answer in a trip's replies, see batch: a run, the position in its count, and the number of
	// its units before that, which only releases and holds need. Both are 0 for the first and for a group.
	run, place int32
	before     int64

	// The answer, which may be read after receiving from done. The replies belong to the trip; calls that share
	// an entry share them.
	replies []Reply
	err     error

	entry Entry
	group []Entry // set instead of entry if there are several
	ctx   context.Context
}

// A trip or the reaper answers a call, whichever claims it first.
const (
	callWaiting = iota
	callLeading // its caller makes a trip, and so notices its deadline itself
	callSent    // it is on a trip
	callClaimed
)

// callPool keeps calls for reuse. Each batcher has its own pool: in a bubble of testing/synctest the channel of
// a call belongs to the bubble, and must not be used outside of it.
type callPool struct{ sync.Pool }

func (p *callPool) get(ctx context.Context) *call {
	c, _ := p.Get().(*call)
	if c == nil {
		// A caller is sent at most two signals before it receives one: its election, and its answer.
		c = &call{done: make(chan struct{}, 2)}
	}
	c.ctx = ctx
	return c
}

func (p *callPool) single(ctx context.Context, e *Entry) *call {
	c := p.get(ctx)
	c.entry, c.work = *e, e.work()
	return c
}

// group returns the call for several entries that are decided together.
func (p *callPool) group(ctx context.Context, group []Entry) *call {
	c := p.get(ctx)
	c.group = group
	for i := range group {
		c.work += group[i].work()
	}
	return c
}

// release puts a call back. Only its caller may do so, and only after a trip has answered, when nothing else
// refers to the call any more.
func (p *callPool) release(c *call) {
	done := c.done
	*c = call{done: done}
	p.Put(c)
}

// answered stores the call's part of the answer to its one entry.
//
//go:noinline // so that its copies are on the stack only now, and not during the trip
func (c *call) answered(reply *Reply) { *reply = c.replies[0].partOf(c) }

// described returns the text by which errors name the call's i-th entry.
func (c *call) described(i int) string {
	if c.group != nil {
		return c.group[i].described()
	}
	return c.entry.described()
}

// lead makes the call's caller the leader of the next trip. It returns false if the caller may not lead, or has
// left.
func (c *call) lead() bool { return c.mayLead && c.state.CompareAndSwap(callWaiting, callLeading) }

// follow undoes lead, unless the call is on a trip or answered.
func (c *call) follow() { c.state.CompareAndSwap(callLeading, callWaiting) }

// send marks the call as sent, unless its caller has left. Meanwhile the caller may stop leading another trip.
func (c *call) send() {
	for !c.state.CompareAndSwap(callWaiting, callSent) && !c.state.CompareAndSwap(callLeading, callSent) && !c.claimed() {
	}
}

// claim reports whether nobody has claimed the call before. Whoever claims a call must answer it.
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
