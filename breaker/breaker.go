// Package breaker decides when Redis counts as lost: gobreaker with this
// project's rules.
//
//   - It watches trips to Redis, never single decisions: a trip carries many, and
//     a denial is a success.
//   - It opens on consecutive failures or on a high failure rate; time-outs are
//     failures, a caller who gives up is not (callers do not make trips).
//   - While it is open nothing but the limiter's own probes go to Redis. Users'
//     requests never serve as probes.
//   - A Redis that is now quick enough and now too slow does not make it flap: each time
//     that it opens soon after it was closed, closing it takes twice as many probes.
//
// Whether it is closed is one atomic load, cheap enough for every decision.
package breaker

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// ErrOpen: Redis counts as lost at the moment.
var ErrOpen = errors.New("tierlimit: the circuit breaker is open")

// State is the state of a breaker.
type State int

// The states, in gobreaker's order.
const (
	Closed   State = iota // trips go to Redis
	HalfOpen              // a probe is under way
	Open                  // Redis counts as lost
)

// String returns "closed", "half-open" or "open".
func (s State) String() string { return gobreaker.State(s).String() }

// The rules for opening.
const (
	// consecutiveFailures in a row open the breaker, if the last of them began when the
	// first was known: trips that were under way together fail together, and a machine
	// that stands still for a moment is no outage. Trips come one after another, mostly: three
	// are three deadlines without an answer...
	consecutiveFailures = 3
	// ...and so does a failureRate over at least minTrips of the last ratePeriod.
	failureRate = 0.5
	minTrips    = 20
	ratePeriod  = 10 * time.Second
	rateBucket  = time.Second
)

// The rules for closing. One probe that succeeds is enough, but twice as many in a row, up
// to mostProbes, if it has opened within relapse of the last time it was closed.
const (
	relapse    = 10 * time.Second
	mostProbes = 16
)

// Breaker is safe for concurrent use.
type Breaker struct {
	steps *gobreaker.TwoStepCircuitBreaker[struct{}]
	state atomic.Int32

	// together is how many trips were under way when the first of those that failed in a
	// row did. Gobreaker's lock guards it.
	together uint32

	forcing atomic.Int32 // calls of ForceOpen under way: any failure opens it then

	closed time.Time    // when it was, last; gobreaker's lock guards it
	needed atomic.Int32 // probes that must succeed in a row
	good   atomic.Int32 // that did
}

// New returns a closed breaker. retryAfter is how long it stays open before a
// probe is let through. onChange, which may be nil, is told of each change of
// state; it must return quickly and must not call the breaker.
func New(retryAfter time.Duration, onChange func(from, to State)) *Breaker {
	b := &Breaker{}
	b.needed.Store(1)
	b.steps = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:  1,
		Interval:     ratePeriod,
		BucketPeriod: rateBucket,
		Timeout:      retryAfter,
		ReadyToTrip:  b.readyToTrip,
		OnStateChange: func(_ string, from, to gobreaker.State) {
			b.state.Store(int32(to))
			b.countProbes(State(from), State(to))
			if onChange != nil {
				onChange(State(from), State(to))
			}
		},
	})
	return b
}

// readyToTrip is asked after each failure.
func (b *Breaker) readyToTrip(c gobreaker.Counts) bool {
	if b.forcing.Load() > 0 {
		return true
	}
	if c.ConsecutiveFailures == 1 {
		ended := c.TotalSuccesses + c.TotalFailures
		b.together = c.Requests - min(c.Requests, ended) // of trips that began long ago only the end is counted
	}
	return c.ConsecutiveFailures >= max(consecutiveFailures, b.together+2) ||
		c.Requests >= minTrips && float64(c.TotalFailures) >= failureRate*float64(c.Requests)
}

// countProbes says how many probes it takes to close the breaker again.
func (b *Breaker) countProbes(from, to State) {
	switch {
	case to == Closed:
		b.closed = time.Now()
	case from == Closed && time.Since(b.closed) < relapse:
		b.needed.Store(min(2*b.needed.Load(), mostProbes))
	case from == Closed:
		b.needed.Store(1)
	}
	if to == Open {
		b.good.Store(0)
	}
}

// State is the current state.
func (b *Breaker) State() State { return State(b.state.Load()) }

// Closed reports whether trips may go to Redis.
func (b *Breaker) Closed() bool { return b.state.Load() == int32(Closed) }

// Begin asks to make a trip. It returns [ErrOpen], or a function that must be
// told, exactly once, how the trip went.
func (b *Breaker) Begin() (done func(error), err error) {
	if !b.Closed() {
		return nil, ErrOpen
	}
	done, err = b.steps.Allow()
	if err != nil {
		return nil, ErrOpen
	}
	return done, nil
}

// Probe runs ping, and closes the breaker if it succeeds and is the last of those that are
// needed in a row. That one returns [ErrOpen], without a ping, if the breaker has not been open
// for long enough. How far probes lie apart is the caller's to say; only one may be under way.
func (b *Breaker) Probe(ping func() error) error {
	if b.State() == Open && b.good.Load()+1 < b.needed.Load() {
		err := ping()
		if b.good.Add(1); err != nil {
			b.good.Store(0)
		}
		return err
	}
	done, err := b.steps.Allow()
	if err != nil {
		return ErrOpen
	}
	err = ping()
	done(err)
	return err
}

// ForceOpen opens a closed breaker at once, whatever trips are under way and however they end:
// for a limiter that finds no Redis when it starts. The breaker is not closed when ForceOpen
// returns, unless a later probe has closed it by then. One that is open, or half-open with a
// probe under way, stays as it is.
//
// Gobreaker has no call for this, so that it is given one failure, which readyToTrip lets
// decide. A loop, because gobreaker ignores the failure if others open and close the breaker
// between Begin and done.
func (b *Breaker) ForceOpen(cause error) {
	b.forcing.Add(1)
	defer b.forcing.Add(-1)
	for b.Closed() {
		if done, err := b.Begin(); err == nil {
			done(cause)
		}
	}
}
