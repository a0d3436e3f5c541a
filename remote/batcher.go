package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/limit"
)

// ErrNoAnswer: Redis did not answer before the deadline. If the entry was sent
// it may have been charged; if it was still on its way it no longer can be.
var ErrNoAnswer = errors.New("tierlimit: no answer from Redis before the deadline")

// ErrUnreadable: the key in Redis holds something that is not this library's, or
// was written by a later version of it.
var ErrUnreadable = errors.New("tierlimit: the key's state in Redis cannot be read")

// Hooks connect the batcher to what it must not know. They are called once for each
// trip, or for each of its entries, by the goroutine that makes it.
type Hooks struct {
	// Begin is asked before each trip; an error means not to make it, and becomes
	// the error of the decisions that waited for it. done is told how the trip
	// went, exactly once.
	Begin func() (done func(error), err error)
	// Now is read before each trip is sent, for Answered. Both may be nil.
	Now func() int64
	// Answered is told of each entry that was answered, before its callers are: what
	// it asked, the reply, and what Now said.
	Answered func(e *Entry, r *Reply, sent int64)
	// Trip is told of each trip made: how many callers it carried and how long it took.
	Trip func(callers int, took time.Duration, err error)
}

// Options tune a [Batcher]. All numbers must be positive.
type Options struct {
	Deadline time.Duration // the longest a decision may take
	MaxBatch int           // entries per trip
	MaxWork  int64         // log units written per trip
	InFlight int           // trips under way at once
	Queue    int           // decisions waiting for a trip
	// VirtualClock, if set, replaces Redis's clock: µs since the epoch.
	VirtualClock func() int64
	// Inline lets a caller make the trip that carries its own decision only. The
	// client must then keep the deadline of a context, in all it does.
	Inline bool
}

// Batcher decides entries by group commit: whoever arrives while trips are under way
// rides on the next one, with all others who do. There is no timer to wait for
// company: a caller who finds a place leaves at once, alone (see pace).
//
// It is safe for concurrent use.
type Batcher struct {
	script *Script
	clocks *clocks
	opt    Options
	hooks  Hooks

	deadlines deadlines

	// lastAnswer is when Redis last answered, lastFull when a trip last left calls behind,
	// in local time. They tell overload (answers come, but too slowly for all) from an
	// outage (none come) and from a Redis that is slow for everyone.
	lastAnswer atomic.Int64
	lastFull   atomic.Int64
	answered   atomic.Int64 // decisions, in time

	running sync.WaitGroup // who makes trips

	mu       sync.Mutex // guards the fields below
	queue    []*call
	trips    []*trip // under way
	inFlight int     // places taken
	pace     pace
	stuck    int // trips given up, whose command has not returned yet
	shed     shed
	closed   bool
	reaper   *time.Timer
	reapAt   int64 // local time it is set for; 0: it is not
	reaped   int64 // local time of its last round
}

// NewBatcher returns a Batcher that runs script. Close it after use.
func NewBatcher(script *Script, opt Options, hooks Hooks) *Batcher {
	if hooks.Now == nil {
		hooks.Now = func() int64 { return 0 }
		hooks.Answered = func(*Entry, *Reply, int64) {}
	}
	b := &Batcher{
		script: script, clocks: newClocks(script.bySlot), opt: opt, hooks: hooks,
		deadlines: deadlines{deadline: opt.Deadline},
		pace:      newPace(opt.Deadline, opt.InFlight, opt.MaxBatch),
	}
	b.reaper = time.AfterFunc(time.Hour, b.reap)
	b.reaper.Stop()
	return b
}

// Answered is how many decisions have been made in time so far, each of a group by itself.
func (b *Batcher) Answered() int64 { return b.answered.Load() }

// Decide gets an entry decided; see [Batcher.DecideAll].
func (b *Batcher) Decide(ctx context.Context, e Entry) (Reply, error) {
	now := localTime()
	deadline, own := b.deadline(ctx, now)
	c := newCall(ctx, now, deadline)
	c.entry = e
	alone, err := b.enqueue(c, b.opt.Inline && !own)
	if err != nil {
		return Reply{}, c.shed(err)
	}
	if alone {
		b.travelAlone(c)
	}
	if <-c.done; c.err != nil {
		return Reply{}, c.err
	}
	reply := c.replies[0].share(&c.entry, c.place)
	c.release()
	return reply, nil
}

// DecideAll gets entries decided in one trip, in order. On a Cluster they must share
// a slot. To have them charged all or none, give them the same Group.
//
// It returns within the deadline, or ctx's own; and within 5 ms when ctx is cancelled,
// but that a caller who makes its own trip (Options.Inline) finishes it first. Errors:
// [ErrNoAnswer], [ErrUnreadable], [limit.ErrOverloaded], [limit.ErrClosed],
// context.Canceled, what Hooks.Begin returned, or what Redis or the client said.
func (b *Batcher) DecideAll(ctx context.Context, entries []Entry) ([]Reply, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	now := localTime()
	deadline, _ := b.deadline(ctx, now)
	c := newCall(ctx, now, deadline)
	c.group = entries
	if _, err := b.enqueue(c, false); err != nil {
		return nil, c.shed(err)
	}
	if <-c.done; c.err != nil {
		return nil, c.err
	}
	replies := slices.Clone(c.replies)
	c.release()
	return replies, nil
}

// deadline is when a decision must be made, in local time, and whether that is the
// context's own deadline.
func (b *Batcher) deadline(ctx context.Context, now int64) (deadline int64, own bool) {
	deadline = now + b.opt.Deadline.Microseconds()
	if t, ok := ctx.Deadline(); ok {
		if ends := now + time.Until(t).Microseconds(); ends < deadline {
			return ends, true
		}
	}
	return deadline, false
}

// enqueue gives a call its place. alone says that the caller has to make the trip,
// which it may only be asked to if mayTravel.
func (b *Batcher) enqueue(c *call, mayTravel bool) (alone bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false, limit.ErrClosed
	}
	if len(b.queue) >= min(b.opt.Queue, b.pace.room) {
		return false, b.shed.one(c.asked)
	}
	if !b.pace.mayStart(b.inFlight, c.asked, false) {
		b.queue = append(b.queue, c)
		b.setReaper(c)
		return false, nil
	}
	b.inFlight++
	if mayTravel && len(b.queue) == 0 {
		b.running.Add(1)
		return true, nil
	}
	b.queue = append(b.queue, c)
	b.setReaper(c)
	b.running.Go(b.travel)
	return false, nil
}

// late is the error of a call whose deadline has passed, and that is not claimed yet:
// overload, if others were answered while it waited to be sent, and a trip had no room for
// all.
func (b *Batcher) late(c *call) error {
	switch {
	case c.state.Load() == callSent:
		return ErrNoAnswer
	case b.lastAnswer.Load() > c.asked && b.lastFull.Load() > c.asked:
		return fmt.Errorf("%w: not sent before the deadline", limit.ErrOverloaded)
	}
	return errNotSent
}

// Close lets no further decision in, fails those that have not been sent yet, and
// waits for the trips under way: as long as the client takes.
func (b *Batcher) Close() {
	b.mu.Lock()
	b.closed = true
	waiting := b.queue
	b.queue = nil
	b.mu.Unlock()
	fail(waiting, limit.ErrClosed)
	b.running.Wait()
	b.mu.Lock()
	b.reaper.Stop()
	b.mu.Unlock()
}
