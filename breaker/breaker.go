// Package breaker decides when Redis counts as lost. It is gobreaker with this project's rules.
//
//   - It watches trips to Redis, never single decisions: a trip carries many decisions,
//     and a denial is a success.
//   - It opens on consecutive failures or on a high failure rate. Time-outs are
//     failures, but a caller that gives up is not.
//   - While it is open, only the limiter's own probes go to Redis. Users' requests
//     never serve as probes.
//   - If Redis alternates between fast enough and too slow, the breaker does not flap (see relapse).
//
// [Breaker.Closed] is one atomic load, cheap enough for every decision.
package breaker

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// ErrOpen means that Redis counts as lost at the moment.
var ErrOpen = errors.New("tierlimit: the circuit breaker is open")

// State is the state of a breaker.
type State int

// The states, in gobreaker's order.
const (
	Closed   State = iota // trips go to Redis
	HalfOpen              // a probe is in flight
	Open                  // Redis counts as lost
)

// String returns "closed", "half-open" or "open".
func (s State) String() string { return gobreaker.State(s).String() }

// The rules for opening.
const (
	// The breaker opens after consecutiveFailures in a row, if the last failed trip began after the first
	// failure was known. The reason is that trips that are in flight together fail together, and a short
	// pause of the machine is not an outage. As most trips are made one after another, three failures are
	// three deadlines without an answer.
	consecutiveFailures = 3
	// The breaker also opens at failureRate over at least minTrips of the last ratePeriod.
	failureRate = 0.5
	minTrips    = 20
	ratePeriod  = 10 * time.Second
	rateBucket  = time.Second
)

// The rules for closing. One successful probe is enough. But if the breaker opened within relapse after
// it was last closed, closing needs twice as many successful probes in a row as the last time, up to
// maxProbes.
const (
	relapse   = 10 * time.Second
	maxProbes = 16
)

// Breaker is a circuit breaker for trips to Redis. It is safe for concurrent use.
type Breaker struct {
	steps *gobreaker.TwoStepCircuitBreaker[struct{}]
	state atomic.Int32

	// together is the number of trips that were in flight at the first of the failures in a row.
	// Gobreaker's lock guards it.
	together uint32

	forcing atomic.Int32 // running calls of ForceOpen; if there are any, each failure opens the breaker

	closed time.Time    // when the breaker was last closed; gobreaker's lock guards it
	needed atomic.Int32 // probes that must succeed in a row
	good   atomic.Int32 // probes that succeeded in a row since the breaker was opened
}

// New returns a closed breaker. retryAfter is how long the breaker stays open before a probe is let
// through. onChange, which may be nil, is called with each change of state; it must return quickly and
// must not call the breaker.
func New(retryAfter time.Duration, onChange func(from, to State)) *Breaker {
	b := &Breaker{}
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

// readyToTrip reports whether to open. Gobreaker calls it after each failure.
func (b *Breaker) readyToTrip(c gobreaker.Counts) bool {
	if b.forcing.Load() > 0 {
		return true
	}
	if c.ConsecutiveFailures == 1 {
		b.together = c.Requests - c.TotalSuccesses - c.TotalFailures // all three count trips by when they began
	}
	return c.ConsecutiveFailures >= max(consecutiveFailures, b.together+2) ||
		c.Requests >= minTrips && float64(c.TotalFailures) >= failureRate*float64(c.Requests)
}

// countProbes sets how many probes it takes to close the breaker again.
func (b *Breaker) countProbes(from, to State) {
	switch {
	case to == Closed:
		b.closed = time.Now()
	case from == Closed && time.Since(b.closed) < relapse:
		b.needed.Store(min(2*b.needed.Load(), maxProbes))
	case from == Closed:
		b.needed.Store(1)
	}
	if from == Closed {
		b.good.Store(0)
	}
}

// State returns the current state.
func (b *Breaker) State() State { return State(b.state.Load()) }

// Closed reports whether trips may go to Redis.
func (b *Breaker) Closed() bool { return b.state.Load() == int32(Closed) }

// Begin asks for permission to make a trip. It returns [ErrOpen], or a function that must be called
// exactly once with the result of the trip.
func (b *Breaker) Begin() (done func(error), err error) {
	if !b.Closed() {
		return nil, ErrOpen
	}
	return b.begin()
}

// begin is the rest of Begin. The breaker may have been opened in the meantime, so long ago that
// gobreaker takes the trip for a probe. Then begin makes the breaker stay open.
func (b *Breaker) begin() (done func(error), err error) {
	done, err = b.steps.Allow()
	if err != nil {
		return nil, ErrOpen
	}
	if !b.Closed() {
		done(ErrOpen)
		return nil, ErrOpen
	}
	return done, nil
}

// Probe runs ping. It closes the breaker if ping succeeds and is the last of the successful probes that
// are needed in a row. That last probe returns [ErrOpen] without a ping if the breaker has not been open
// for long enough. The caller decides the interval of probes; only one may run at a time.
func (b *Breaker) Probe(ping func() error) error {
	done := func(error) {}
	if b.good.Load()+1 >= b.needed.Load() {
		var err error
		if done, err = b.steps.Allow(); err != nil {
			return ErrOpen
		}
	}
	err := ping()
	if b.good.Add(1); err != nil {
		b.good.Store(0)
	}
	done(err)
	return err
}

// ForceOpen opens a closed breaker at once, regardless of trips in flight and their results. It is for a
// limiter that finds no Redis when it starts. When ForceOpen returns, the breaker is not closed, unless a
// later probe has closed it by then. A breaker that is open, or half-open with a probe in flight, stays
// as it is.
//
// Gobreaker has no call for this, so ForceOpen gives it one failure, on which readyToTrip opens. It does
// so in a loop, because gobreaker ignores the failure if other goroutines open and close the breaker
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
