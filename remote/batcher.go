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

// ErrNoRoom: more decisions wait than Redis can make in time, or than Options.Queue. The
// entry was not sent. It is made once: under overload many calls end with it.
var ErrNoRoom = fmt.Errorf("%w: too many decisions wait for it already: %w", ErrNoAnswer, errNotRun)

// ErrUnreadable: the key in Redis holds something that is not this library's, is damaged, or
// was written by a later version of it. It is left as it is, until it expires or is forgotten
// (lua.Forget).
var ErrUnreadable = errors.New("tierlimit: a key's state in Redis cannot be read: it is damaged, of another type, or of a later version. Until it expires, Rule.Reset of the key makes it anew")

// Hooks connect the batcher to what it must not know. They are called once for each
// trip, by the goroutine that makes it.
type Hooks struct {
	// Begin is asked before each trip; an error means not to make it, and becomes
	// the error of the decisions that waited for it. done is told how the trip
	// went, exactly once.
	Begin func() (done func(error), err error)
	// Now is read before each trip is sent, for askers. It may be nil.
	Now func() int64
	// Shard tells askers which batcher it was.
	Shard int
	// Trip is told of each trip made: how many callers it carried and how long it took.
	Trip func(callers int, took time.Duration, err error)
}

// Asker is who asks for the entries of a rule, see [Rule.Named].
type Asker interface {
	// Answered is told of each entry that was answered, once, before its callers are: by which
	// batcher (Hooks.Shard), what it asked, the reply, and what Hooks.Now said before it was sent.
	// The goroutine that makes the trip calls it.
	Answered(shard int, e *Entry, r *Reply, sent int64)
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
	// Inline lets callers make trips. The client must then keep the deadline of a context,
	// in all it does. Otherwise goroutines make them.
	Inline bool
}

// Batcher decides entries by group commit: whoever arrives while a trip is under way shares
// the next one with all others who do (lead.go).
//
// It is safe for concurrent use.
type Batcher struct {
	script *Script
	clocks *clocks
	opt    Options
	hooks  Hooks

	lastAnswer atomic.Int64 // local time of Redis's last answer
	answered   atomic.Int64 // decisions, in time

	running sync.WaitGroup // who makes trips

	mu       sync.Mutex // guards the fields below
	queue    queue
	trips    []*trip // under way
	spare    []*trip // to be used again
	inFlight int     // places taken
	stuck    int     // trips given up, whose command has not returned yet
	room     room
	distance distance
	failed   bool  // the last trip
	slow     bool  // Redis, or the last trip failed
	last     cargo // of the last trip

	closed bool
	reaper *time.Timer
	reapAt int64 // local time it is set for; 0: it is not
	reaped int64 // local time of its last round, and a while
}

// NewBatcher returns a Batcher that runs script. Close it after use.
func NewBatcher(script *Script, opt Options, hooks Hooks) *Batcher {
	if hooks.Now == nil {
		hooks.Now = func() int64 { return 0 }
	}
	b := &Batcher{
		script: script, clocks: newClocks(script.bySlot), opt: opt, hooks: hooks,
	}
	b.reaper = time.AfterFunc(time.Hour, b.reap)
	b.reaper.Stop()
	return b
}

// Answered is how many decisions have been made in time so far, each of a group by itself.
func (b *Batcher) Answered() int64 { return b.answered.Load() }

// Decide gets an entry decided, all of its count; see [Batcher.DecideAll].
func (b *Batcher) Decide(ctx context.Context, e Entry) (Reply, error) {
	c := newCall(ctx, e)
	if err := b.decide(c, b.opt.Deadline); err != nil {
		return Reply{}, err
	}
	reply := c.replies[0].share(&c.entry, c.place)
	c.release()
	return reply, nil
}

// DecideAll gets entries decided in one trip, in order, and within the given time, at most
// Options.Deadline. On a Cluster they must share a slot. To have them charged all or none, give
// them the same Group.
//
// It returns within that time, or when ctx's deadline passes, and within 25 ms when ctx is
// cancelled, but that a caller who makes its own trip (Options.Inline) finishes it first.
// Errors: [ErrNoAnswer], [ErrDecideBy], [ErrNoRoom], [ErrUnreadable], [limit.ErrClosed], those of ctx,
// which say nothing of Redis, what Hooks.Begin returned, or what Redis or the client said.
func (b *Batcher) DecideAll(ctx context.Context, entries []Entry, within time.Duration) ([]Reply, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	c := newGroupCall(ctx, entries)
	if err := b.decide(c, min(within, b.opt.Deadline)); err != nil {
		return nil, err
	}
	replies := slices.Clone(c.replies)
	c.release()
	return replies, nil
}

// hurriedPart is the part of the limiter's time with less than which a caller is in a hurry of
// its own. Others are decided elsewhere if there is no answer in time, if need be a little sooner.
const hurriedPart = 0.75

// decide gets a call answered. Its caller may have to make trips for it, and for others; but
// not one who has less time than the limiter gives: the others would have no more than that one.
func (b *Batcher) decide(c *call, within time.Duration) error {
	if left := TimeLeft(c.ctx, within); left < within {
		within = left
		c.short = float64(left) < wholePart*float64(b.opt.Deadline)
		if left < min(leastTime, b.opt.Deadline/leastTimePart) {
			return errDecideByNotSent
		}
	}
	c.asked = localTime()
	c.deadline = c.asked + within.Microseconds()
	if t, ok := c.ctx.Deadline(); ok {
		if ends := c.asked + time.Until(t).Microseconds(); ends < c.deadline {
			c.hurried = ends-c.asked < int64(hurriedPart*float64(c.deadline-c.asked))
			c.deadline = ends
		}
	}
	c.mayLead = b.opt.Inline && !c.hurried && !c.short
	lead, others, err := b.enqueue(c)
	if err != nil {
		return err
	}
	if lead {
		b.lead(c, others)
	}
	for <-c.done; c.elected; <-c.done {
		c.elected = false
		b.lead(c, true)
	}
	return c.err
}

// late is the error of a call whose deadline has passed, and that is not claimed yet. That a
// caller has no time says nothing of Redis.
func (b *Batcher) late(c *call) error {
	sent := c.state.Load() == callSent
	switch {
	case c.hurried:
		return errHurried
	case c.short && sent:
		return ErrDecideBy
	case c.short:
		return errDecideByNotSent
	case sent:
		return ErrNoAnswer
	}
	return errNotSent
}

// Close lets no further decision in, fails those that have not been sent yet, and
// waits for the trips under way: as long as the client takes.
func (b *Batcher) Close() {
	b.mu.Lock()
	b.closed = true
	waiting := b.queue.take(nil).calls
	b.mu.Unlock()
	fail(waiting, limit.ErrClosed)
	b.running.Wait()
	b.mu.Lock()
	b.reaper.Stop()
	b.mu.Unlock()
}
