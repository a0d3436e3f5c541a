package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// ErrNoAnswer: Redis did not answer before the deadline. If the entry was sent
// it may have been charged; if it was still on its way it no longer can be.
var ErrNoAnswer = errors.New("tierlimit: no answer from Redis before the deadline")

// ErrUnreadable: the key in Redis holds something that is not this library's, or
// was written by a later version of it.
var ErrUnreadable = errors.New("tierlimit: the key's state in Redis cannot be read")

// Hooks connect the batcher to what it must not know. All are called off the
// callers' path, from the goroutine of a trip.
type Hooks struct {
	// Begin is asked before each trip; an error means not to make it, and becomes
	// the error of the decisions that waited for it. done is told how the trip
	// went, exactly once.
	Begin func() (done func(error), err error)
	// Trip is told of each trip made: its number of entries and how long it took.
	Trip func(entries int, took time.Duration, err error)
}

// Options tune a [Batcher]. All must be positive.
type Options struct {
	Deadline time.Duration // the longest a decision may take
	MaxBatch int           // entries per trip
	MaxWork  int64         // log units written per trip
	InFlight int           // trips under way at once
	Queue    int           // decisions waiting for a trip
	// VirtualClock, if set, replaces Redis's clock: µs since the epoch.
	VirtualClock func() int64
}

// Batcher decides entries by group commit: whoever arrives while all trips are
// under way rides on the next one. There is no timer to wait for company: an
// entry that finds a free trip leaves at once, alone.
//
// It is safe for concurrent use.
type Batcher struct {
	script *Script
	clocks *clocks
	opt    Options
	hooks  Hooks

	// lastAnswer is when Redis last answered, in local time. It tells overload
	// (answers come, but too slowly for all) from an outage (none come).
	lastAnswer atomic.Int64

	running sync.WaitGroup // goroutines that make trips

	mu       sync.Mutex // guards the fields below
	queue    []*call
	inFlight int // trips that hold a place
	stuck    int // trips given up, whose command has not returned yet
	closed   bool
}

// maxStuck bounds the goroutines that wait inside a client that does not honour
// deadlines (see Batcher.trip).
const maxStuck = 32

// call is what one caller asks: a decision, or several that go together.
type call struct {
	entries  []Entry
	deadline int64 // local time
	resent   bool
	sent     atomic.Bool
	replies  []Reply // replies and err may be read once done is closed
	err      error
	done     chan struct{}
}

func (c *call) finish(replies []Reply, err error) {
	c.replies, c.err = replies, err
	close(c.done)
}

// work is how many units the script writes one by one for the call.
func (c *call) work() (units int64) {
	for i := range c.entries {
		if c.entries[i].Rule.perUnit {
			units += c.entries[i].Cost
		}
	}
	return units
}

// NewBatcher returns a Batcher that runs script. Close it after use.
func NewBatcher(script *Script, opt Options, hooks Hooks) *Batcher {
	return &Batcher{script: script, clocks: newClocks(script.bySlot), opt: opt, hooks: hooks}
}

// Decide gets an entry decided; see [Batcher.DecideAll].
func (b *Batcher) Decide(ctx context.Context, e Entry) (Reply, error) {
	replies, err := b.DecideAll(ctx, []Entry{e})
	if err != nil {
		return Reply{}, err
	}
	return replies[0], nil
}

// DecideAll gets entries decided in one trip, in order. On a Cluster they must share
// a slot. To have them charged all or none, give them the same Group.
//
// It returns within the deadline, or when ctx ends if that is earlier. Errors:
// [ErrNoAnswer], [ErrUnreadable], [limit.ErrOverloaded], [limit.ErrClosed],
// context.Canceled, what Hooks.Begin returned, or what Redis or the client said.
func (b *Batcher) DecideAll(ctx context.Context, entries []Entry) ([]Reply, error) {
	wait := b.opt.Deadline
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline))
	}
	c := &call{entries: entries, deadline: localTime() + wait.Microseconds(), done: make(chan struct{})}
	if err := b.enqueue(c); err != nil {
		return nil, err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-c.done:
		return c.replies, c.err
	case <-timer.C:
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, ctx.Err()
		}
	}
	if !c.sent.Load() && localTime()-b.lastAnswer.Load() < b.opt.Deadline.Microseconds() {
		return nil, fmt.Errorf("%w: not sent within %v", limit.ErrOverloaded, wait)
	}
	return nil, ErrNoAnswer
}

// Close lets no further decision in, fails those that have not been sent yet, and
// waits for the trips under way: as long as the client takes.
func (b *Batcher) Close() {
	b.mu.Lock()
	b.closed = true
	waiting := b.queue
	b.queue = nil
	b.mu.Unlock()
	for _, c := range waiting {
		c.finish(nil, limit.ErrClosed)
	}
	b.running.Wait()
}

func (b *Batcher) enqueue(c *call) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return limit.ErrClosed
	}
	if len(b.queue) >= b.opt.Queue {
		return fmt.Errorf("%w: %d decisions are waiting already", limit.ErrOverloaded, len(b.queue))
	}
	b.queue = append(b.queue, c)
	if b.inFlight < b.opt.InFlight {
		b.inFlight++
		b.running.Go(b.trips)
	}
	return nil
}

// trips makes trips until nobody waits.
func (b *Batcher) trips() {
	for {
		batch := b.next()
		if batch == nil || !b.trip(batch) {
			return
		}
	}
}

// next takes the decisions of the next trip from the queue, first come, first
// served. If there are none, it gives up the caller's place and returns nil.
func (b *Batcher) next() []*call {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := localTime()
	var batch []*call
	entries, work := 0, int64(0)
	taken := 0
	for _, c := range b.queue {
		entries, work = entries+len(c.entries), work+c.work()
		if len(batch) > 0 && (entries > b.opt.MaxBatch || work > b.opt.MaxWork) {
			break
		}
		taken++
		if c.deadline > now { // else its caller has left
			c.sent.Store(true)
			batch = append(batch, c)
		}
	}
	b.queue = b.queue[taken:]
	if batch == nil {
		b.queue = nil // every caller has left: let go of the array as well
		b.inFlight--
	}
	return batch
}

// trip makes one trip and hands out the answers. It reports whether the caller
// still holds its place in flight.
//
// A client may be set up in a way that does not honour the deadline: by default
// go-redis waits for seconds. So a watch ends the trip in time whatever the
// client does, and the place goes to another goroutine; this one is left behind
// until the client returns. Only so many may be left behind.
func (b *Batcher) trip(batch []*call) (holdsPlace bool) {
	done, err := b.hooks.Begin()
	if err != nil {
		fail(batch, err)
		return true
	}
	clock := int64(0)
	if b.opt.VirtualClock != nil {
		clock = b.opt.VirtualClock()
	}
	entries := make([]Entry, 0, len(batch))
	for i, c := range batch {
		for _, e := range c.entries {
			if clock == 0 {
				e.NotAfter = b.clocks.notAfter(e.Key, c.deadline)
			}
			if e.Group != 0 {
				e.Group = i + 1 // apart from the groups of other calls
			}
			entries = append(entries, e)
		}
	}

	started := time.Now()
	var over atomic.Bool // either the watch or this goroutine ends the trip
	placeLeft := false   // written by the watch, to be read once ended is closed
	ended := make(chan struct{})
	watch := time.AfterFunc(b.opt.Deadline, func() {
		if !over.CompareAndSwap(false, true) {
			return
		}
		defer close(ended)
		placeLeft = b.leaveBehind()
		done(ErrNoAnswer)
		b.hooks.Trip(len(entries), time.Since(started), ErrNoAnswer)
		fail(batch, ErrNoAnswer)
	})
	ctx, cancel := context.WithTimeout(context.Background(), b.opt.Deadline)
	sent := localTime()
	replies, err := b.script.Run(ctx, entries, clock)
	received := localTime()
	cancel()
	watch.Stop()
	if !over.CompareAndSwap(false, true) {
		<-ended
		if placeLeft {
			b.mu.Lock()
			b.stuck--
			b.mu.Unlock()
		}
		return !placeLeft
	}

	switch {
	case err == nil:
		b.lastAnswer.Store(received)
		err = partError(replies)
	case KindOf(err) == Timeout: // the client's deadline beat the watch
		err = fmt.Errorf("%w: %w", ErrNoAnswer, err)
	}
	// Counted before anyone learns of it: who has a decision finds its trip counted.
	done(err)
	b.hooks.Trip(len(entries), time.Since(started), err)
	if replies == nil {
		fail(batch, err)
	} else {
		b.handOut(batch, replies, sent, received)
	}
	return true
}

// leaveBehind passes a stuck trip's place on, unless too many are stuck already.
func (b *Batcher) leaveBehind() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stuck >= maxStuck {
		return false
	}
	b.stuck++
	b.running.Go(b.trips)
	return true
}

// partError is the first error of a part of a batch, if any.
func partError(replies []Reply) error {
	for i := range replies {
		if replies[i].Err != nil {
			return replies[i].Err
		}
	}
	return nil
}

// handOut gives each call its replies.
func (b *Batcher) handOut(batch []*call, replies []Reply, sent, received int64) {
	var again []*call
	for _, c := range batch {
		own := replies[:len(c.entries):len(c.entries)]
		replies = replies[len(c.entries):]
		err := b.inspect(c, own, sent, received)
		if errors.Is(err, errExpired) {
			if !c.resent && localTime() < c.deadline {
				// Redis's clock is further ahead than was known. Nothing was charged, and
				// the reply has told the right time: once more.
				c.resent = true
				again = append(again, c)
				continue
			}
			err = ErrNoAnswer
		}
		if err != nil {
			own = nil
		}
		c.finish(own, err)
	}
	if again != nil {
		b.mu.Lock()
		if b.closed {
			fail(again, limit.ErrClosed)
		} else {
			b.queue = append(again, b.queue...)
		}
		b.mu.Unlock()
	}
}

// errExpired: an entry reached Redis after its not-after, and charged nothing.
var errExpired = errors.New("tierlimit: expired")

// inspect learns the servers' clocks from a call's replies, and says what is wrong
// with them.
func (b *Batcher) inspect(c *call, replies []Reply, sent, received int64) (err error) {
	for i, r := range replies {
		key := c.entries[i].Key
		if r.Err != nil {
			return r.Err
		}
		if b.opt.VirtualClock == nil {
			b.clocks.observe(key, r.Clock, sent, received)
		}
		switch r.Status {
		case lua.Unreadable:
			err = fmt.Errorf("%w: %q", ErrUnreadable, key)
		case lua.Expired:
			if err == nil {
				err = errExpired
			}
		}
	}
	return err
}

func fail(batch []*call, err error) {
	for _, c := range batch {
		c.finish(nil, err)
	}
}
