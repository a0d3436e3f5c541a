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

// ErrNoAnswer means that Redis did not answer before the deadline. The entry may have been charged
// if Redis had received it; if it is still on its way, it will not be charged.
var ErrNoAnswer = errors.New("tierlimit: no answer from Redis before the deadline")

// ErrNoRoom means that more decisions wait than Redis can make in time, or than Options.Queue. The
// entry was not sent. It is a single value, because under overload many calls end with it.
var ErrNoRoom = fmt.Errorf("%w: too many decisions wait for it already: %w", ErrNoAnswer, errNotRun)

// ErrUnreadable means that the key's value in Redis is not this library's, is damaged, or was
// written by a later version of it. It is left as it is, until it expires or is forgotten
// (lua.Forget).
var ErrUnreadable = errors.New("tierlimit: a key's state in Redis cannot be read: it is damaged, of another type, or of a later version. Until it expires, Rule.Reset of the key makes it anew")

// Hooks connect the batcher to packages that it must not import. They are called once for each
// trip, by the goroutine that makes it.
type Hooks struct {
	// Begin is called before each trip. If it returns an error, the trip is not made, and the
	// decisions that waited for it get that error. Otherwise done is called exactly once, with the
	// result of the trip.
	Begin func() (done func(error), err error)
	// Now is called before each trip is sent; its result is passed to askers. It may be nil.
	Now func() int64
	// Shard identifies the batcher to askers.
	Shard int
	// Trip is called after each trip, with the number of callers that it carried and the time it
	// took.
	Trip func(callers int, took time.Duration, err error)
}

// Asker is notified of the answers to a rule's entries, see [Rule.Named].
type Asker interface {
	// Answering is called for all entries of a trip of several, before Answered is for the first of them, so
	// that what the asker keeps of them can be fetched from main memory at the same time.
	Answering(e *Entry)
	// Answered is called once for each entry that was answered, before its callers get the answer:
	// with the batcher (Hooks.Shard), the entry, the reply, and the result of Hooks.Now before it
	// was sent. The goroutine that makes the trip calls it.
	Answered(shard int, e *Entry, r *Reply, sent int64)
}

// Options tune a [Batcher]. All numbers must be positive.
type Options struct {
	Deadline time.Duration // the longest a decision may take
	MaxBatch int           // entries per trip
	MaxWork  int64         // log units written per trip
	InFlight int           // trips in flight at once
	Queue    int           // decisions that may wait for a trip
	// VirtualClock, if set, replaces Redis's clock: µs since the epoch.
	VirtualClock func() int64
	// Inline lets callers make trips in their own goroutines. The client must then keep the
	// deadline of a context in everything that it does. Otherwise separate goroutines make the
	// trips.
	Inline bool
}

// Batcher decides entries by group commit: all calls that arrive while a trip is in flight share
// the next one (lead.go).
//
// It is safe for concurrent use.
type Batcher struct {
	script *Script
	opt    Options
	hooks  Hooks

	lastAnswer atomic.Int64 // local time of Redis's last answer
	answered   atomic.Int64 // decisions, in time
	asking     atomic.Int64 // callers

	running sync.WaitGroup // goroutines that make trips
	calls   callPool

	mu       sync.Mutex // guards the fields below
	queue    queue
	trips    []*trip // in flight
	spare    []*trip // for reuse
	inFlight int     // trips that have a place
	stuck    int     // trips given up, whose command has not returned yet
	room     room
	distance distance
	alone    bool  // no other process of the fleet uses Redis
	failed   bool  // the last trip
	slow     bool  // Redis, or the last trip failed
	last     cargo // of the last trip
	took     int64 // µs, of the last trip that was answered
	takes    int64 // µs that a trip takes at least: the shorter of the last two answered
	delay    int64 // µs of that one that this process took

	closed bool
	reaper *time.Timer
	reapAt int64 // local time that the timer is set for; 0: not set
	reaped int64 // local time of its last round, plus a pause
}

// NewBatcher returns a Batcher that runs script. Close it after use.
func NewBatcher(script *Script, opt Options, hooks Hooks) *Batcher {
	if hooks.Now == nil {
		hooks.Now = func() int64 { return 0 }
	}
	b := &Batcher{
		script: script, opt: opt, hooks: hooks,
	}
	b.reaper = time.AfterFunc(time.Hour, b.reap)
	b.reaper.Stop()
	return b
}

// Answered returns the number of decisions made in time so far, counting each of a group.
func (b *Batcher) Answered() int64 { return b.answered.Load() }

// Asked reports whether any caller waits for a decision.
func (b *Batcher) Asked() bool { return b.asking.Load() > 0 }

// shares says how many processes share Redis, this one included.
func (b *Batcher) shares(processes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.alone = processes == 1
}

// Decide has one entry decided, with all of its count; see [Batcher.DecideAll].
func (b *Batcher) Decide(ctx context.Context, e Entry) (reply Reply, err error) {
	err = b.DecideInto(ctx, &e, &reply)
	return reply, err
}

// DecideInto is Decide without copies on the stack: a goroutine that is started for a request has a small
// one, and copying it into a larger one takes longer than most of a decision. The entry may be reused
// afterwards.
func (b *Batcher) DecideInto(ctx context.Context, e *Entry, reply *Reply) error {
	c := b.calls.single(ctx, e)
	if err := b.decide(c, b.opt.Deadline); err != nil {
		return err
	}
	c.answered(reply)
	b.calls.release(c)
	return nil
}

// DecideAll has entries decided in one trip, in order, and within the given time, at most
// Options.Deadline. On a Cluster they must share a slot. Entries with the same Group are charged
// all or none. Entries without one fail by themselves, see Reply.Err; the error is that of all.
//
// It returns within that time, or when ctx's deadline passes, and within 25 ms when ctx is
// cancelled. But a caller that makes its own trip (Options.Inline) finishes it first. Errors:
// [ErrNoAnswer], [ErrDecideBy], [ErrNoRoom], [ErrUnreadable], [limit.ErrClosed], those of ctx,
// which say nothing of Redis, what Hooks.Begin returned, or what Redis or the client said.
func (b *Batcher) DecideAll(ctx context.Context, entries []Entry, within time.Duration) ([]Reply, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	c := b.calls.group(ctx, entries)
	if err := b.decide(c, min(within, b.opt.Deadline)); err != nil {
		return nil, err
	}
	replies := slices.Clone(c.replies)
	b.calls.release(c)
	return replies, nil
}

// hurriedPart defines which callers are hurried: those whose own context leaves them less than this
// part of the limiter's time. Without an answer in time, hurried calls end with their context's
// error; the others are decided without Redis, if need be a little sooner.
const hurriedPart = 0.75

// decide gets a call answered. Its caller may have to make trips for it and for others, unless it has
// less time than the limiter's deadline: the others would then have no more time than that caller.
func (b *Batcher) decide(c *call, within time.Duration) error {
	b.asking.Add(1)
	defer b.asking.Add(-1)
	if left := TimeLeft(c.ctx, within); left < within {
		within = left
		c.short = float64(left) < wholePart*float64(b.opt.Deadline)
		c.ownTime = c.short && !isRest(c.ctx)
		if left < min(leastTime, b.opt.Deadline/leastTimePart) {
			return b.late(c)
		}
	}
	c.asked = localTime()
	c.deadline = c.asked + within.Microseconds()
	if t, ok := c.ctx.Deadline(); ok {
		if ends := localTimeOf(t); ends < c.deadline {
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
	return b.await(c)
}

// await returns once the call is answered. Until then its caller leads the trips for which it is elected.
func (b *Batcher) await(c *call) error {
	for <-c.done; c.elected; <-c.done {
		c.elected = false
		b.lead(c, true)
	}
	return c.err
}

// late returns the error of a call whose deadline has passed, and that is not claimed yet. A
// caller's own short deadline is no failure of Redis.
func (b *Batcher) late(c *call) error {
	sent := c.state.Load() == callSent
	switch {
	case c.hurried:
		return errHurried
	case c.ownTime && sent:
		return ErrDecideBy
	case c.ownTime:
		return errDecideByNotSent
	case sent:
		return ErrNoAnswer
	}
	return errNotSent
}

// Close refuses further decisions, fails those that have not been sent yet, and waits for the trips
// in flight for as long as the client takes.
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
