package remote

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/limit"
)

// Hooks connect the batcher to packages that it must not import. They are called once for each
// trip, by the goroutine that makes it.
type Hooks struct {
	// Begin is called before each trip. If it returns an error, the trip is not made, and the waiting decisions
	// end with that error. Otherwise done is called exactly once, with the result of the trip.
	Begin func() (done func(error), err error)
	// Now is called before each trip is sent; its result is passed to observers. It may be nil.
	Now func() int64
	// Shard identifies the batcher to observers.
	Shard int
	// Trip is called after each trip, with the number of callers that it carried and the time it
	// took.
	Trip func(callers int, took time.Duration, err error)
}

// Observer is notified of the replies to a rule's entries, see [Rule.Named].
type Observer interface {
	// Answering is called for all entries of a trip that carries several, before Answered is called for the
	// first of them. So the observer can have its data on all of them fetched from main memory at the same time.
	Answering(e *Entry)
	// Answered is called once for each answered entry, before its callers get the answer, by the goroutine that
	// makes the trip. shard is the batcher (Hooks.Shard); sent is what Hooks.Now returned before the entry was
	// sent.
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
	// Inline lets callers make trips in their own goroutines. Everything that the client does must then keep to
	// the context's deadline. Otherwise separate goroutines make the trips.
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
	answered   atomic.Int64 // decisions made in time
	waiting    atomic.Int64 // callers that wait

	running sync.WaitGroup // goroutines that make trips
	apart   detached       // trips of [Batcher.DecideApart]
	calls   callPool

	mu       sync.Mutex // guards the fields below
	queue    queue
	trips    []*trip // in flight
	spare    []*trip // for reuse
	inFlight int     // trips that have a place: those that count toward Options.InFlight
	stuck    int     // trips that were given up, and whose command has not returned yet
	room     room
	distance distance
	alone    bool   // no other process of the fleet uses Redis
	parallel bool   // Go may use more than one processor
	newest   uint64 // the hash of the call that came last; 0 for a group
	repeated bool   // it has the hash of the call before it, and likely shares an entry with it
	many     int64  // local time at which more than fewCallers waited last
	failed   bool   // the last trip failed
	slow     bool   // Redis is slow, or the last trip failed
	last     cargo  // what the last trip carried
	delay    int64  // µs of the last answered trip for which this process is responsible
	took     durations

	closed bool
	reaper *time.Timer
	reapAt int64 // local time that the timer is set for; 0: not set
	spared bool  // the last round came late, and ended nothing
	reaped int64 // the earliest local time of the timer's next round: the end of the last round, plus a pause
}

// NewBatcher returns a Batcher that runs script. Close it after use.
func NewBatcher(script *Script, opt Options, hooks Hooks) *Batcher {
	if hooks.Now == nil {
		hooks.Now = func() int64 { return 0 }
	}
	b := &Batcher{script: script, opt: opt, hooks: hooks}
	b.reaper = time.AfterFunc(time.Hour, b.reap)
	b.reaper.Stop()
	return b
}

// Answered returns the number of decisions made in time so far; each decision of a group counts.
func (b *Batcher) Answered() int64 { return b.answered.Load() }

// HasWaiters reports whether any caller waits for a decision.
func (b *Batcher) HasWaiters() bool { return b.waiting.Load() > 0 }

// setProcesses records how many processes share Redis, including this one.
func (b *Batcher) setProcesses(processes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.alone, b.parallel = processes == 1, runtime.GOMAXPROCS(0) > 1
}

// Decide has one entry decided, with its whole count; see [Batcher.DecideAll].
func (b *Batcher) Decide(ctx context.Context, e Entry) (reply Reply, err error) {
	err = b.DecideInto(ctx, &e, &reply)
	return reply, err
}

// DecideInto is Decide without copies on the stack. A goroutine that was started for a request has a small
// stack, and moving to a larger one takes longer than most of a decision. The entry may be reused afterwards.
func (b *Batcher) DecideInto(ctx context.Context, e *Entry, reply *Reply) error {
	c := b.calls.single(ctx, e)
	if err := b.decide(c, b.opt.Deadline); err != nil {
		return err
	}
	c.answered(reply)
	b.calls.release(c)
	return nil
}

// DecideAll has entries decided in one trip, in order, and within the given time, at most Options.Deadline. On
// a Cluster they must share a slot. Entries with the same Group are charged all or none. Entries without a
// Group fail separately, see Reply.Err; the error that DecideAll returns is for the whole call.
//
// DecideAll returns within that time, or when ctx's deadline passes, and within 25 ms when ctx is canceled.
// But a caller that makes its own trip (Options.Inline) finishes it first. The error is [ErrNoAnswer],
// [ErrDecideBy], [ErrNoRoom], [ErrUnreadable], [limit.ErrClosed], an error of ctx, which says nothing about
// Redis, the error that Hooks.Begin returned, or an error of Redis or the client.
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

// hurriedPart defines which callers are hurried: those whose own context leaves them less than this part of the
// limiter's time. A hurried call that is not answered in time ends with its context's error. Other calls are
// then decided without Redis, if necessary a little before their deadline.
const hurriedPart = 0.75

// Within returns how much time several calls with this context have, if they are made one after another within the
// given time. It ends with the context, unless the caller is hurried. Without it, the last calls would be hurried
// because the first have used up the time.
func Within(ctx context.Context, within time.Duration) time.Duration {
	if t, ok := ctx.Deadline(); ok && time.Until(t) >= time.Duration(hurriedPart*float64(within)) {
		return min(within, time.Until(t))
	}
	return within
}

// decide gets a call answered. The caller may have to make trips for its own call and for others, unless it has
// less time than the limiter's deadline: the other calls would then have no more time than that caller.
func (b *Batcher) decide(c *call, within time.Duration) error {
	b.waiting.Add(1)
	defer b.waiting.Add(-1)
	if left := TimeLeft(c.ctx, within); left < within {
		within = left
		c.short = float64(left) < wholePart*float64(b.opt.Deadline)
		by, _ := decideByOf(c.ctx)
		c.ownTime = c.short && !by.rest
		if left < min(leastTime, b.opt.Deadline/leastTimePart) {
			return c.late()
		}
	}
	if within <= 0 {
		return c.late()
	}
	c.began = localTime()
	c.deadline = c.began + within.Microseconds()
	if t, ok := c.ctx.Deadline(); ok {
		if ends := localTimeOf(t); ends < c.deadline {
			c.hurried = ends-c.began < int64(hurriedPart*float64(c.deadline-c.began))
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

// await returns once the call is answered. Until then its caller leads each trip that it is elected for.
func (b *Batcher) await(c *call) error {
	for <-c.done; c.elected; <-c.done {
		c.elected = false
		b.lead(c, true)
	}
	return c.err
}

// late returns the error of a call whose deadline has passed. If the caller had set a shorter deadline of its own,
// that is no failure of Redis.
func (c *call) late() error {
	sent := c.state.Load() == callSent
	switch {
	case c.hurried && sent:
		return errHurried
	case c.hurried:
		return errHurriedNotSent
	case c.ownTime && sent:
		return ErrDecideBy
	case c.ownTime:
		return errDecideByNotSent
	case sent:
		return ErrNoAnswer
	}
	return errNotSent
}

// Close refuses further decisions, fails those that have not been sent yet, and waits until the client has
// returned from the trips in flight.
func (b *Batcher) Close() {
	b.mu.Lock()
	b.closed = true
	waiting := b.queue.take(nil).calls
	b.mu.Unlock()
	fail(waiting, limit.ErrClosed)
	b.running.Wait()
	b.apart.running.Wait()
	b.mu.Lock()
	b.reaper.Stop()
	b.mu.Unlock()
}
