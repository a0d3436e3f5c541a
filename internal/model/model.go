// Package model holds plain reference models of the rate limiting algorithms,
// one file per algorithm. They are the yardstick that the scripts in Redis are
// tested against, field by field, so they are written to be obviously right
// rather than fast or small.
//
// All times are whole microseconds since the Unix epoch, not negative; all
// waits are whole microseconds. A model is not safe for concurrent use.
package model

import (
	"fmt"

	"github.com/tierlimit/tierlimit/limit"
)

// Outcome is what a model answers to one request.
type Outcome struct {
	// Allowed says whether the cost was granted, and so charged.
	Allowed bool

	// Remaining is how many units a next request could be granted right after
	// this one. It is never negative.
	Remaining int64

	// RetryAfter is the smallest wait after which the same cost would be granted
	// if nothing else happened; 0 when Allowed.
	RetryAfter int64

	// NextAfter is the smallest wait after which a cost of 1 would be granted;
	// 0 when Allowed and when Remaining is not 0.
	NextAfter int64

	// ResetAfter is the smallest wait after which the key grants what it would
	// grant had it never been used; 0 if it does already.
	ResetAfter int64
}

// Model is one key under one limit.
type Model interface {
	// Decide grants or denies cost at the time now. The cost must be between 1
	// and the algorithm's capacity; any other is denied, with RetryAfter and
	// NextAfter 0, because no wait would help.
	Decide(now, cost int64) Outcome

	// Clone returns an independent copy, to ask "what if" without changing the
	// original.
	Clone() Model
}

// New returns the model of an unused key under limit l, counted by a. The error
// wraps [limit.ErrInvalidLimit] or [limit.ErrInvalidAlgorithm]; automatic is
// invalid here, since it is not for a model to choose.
func New(l limit.Limit, a limit.Algorithm) (Model, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	if err := a.Validate(); err != nil {
		return nil, err
	}
	units, err := newTally(a, l.Quota(), l.Window().Microseconds(), l.Burst())
	if err != nil {
		return nil, err
	}
	return &key{capacity: a.Capacity(l), units: units}, nil
}

// tally is the units of a key as one algorithm counts them. It knows nothing
// of clocks that go back: no time it is asked about is before its last charge.
type tally interface {
	// free is how many units could be charged at t.
	free(t int64) int64
	// charge adds cost units at t, at most free(t).
	charge(t, cost int64)
	// wait is the smallest w >= 0 such that free(t+w) >= cost.
	wait(t, cost int64) int64
	// reset is the smallest w >= 0 such that nothing charged counts at t+w.
	reset(t int64) int64
	clone() tally
}

func newTally(a limit.Algorithm, quota, window, burst int64) (tally, error) {
	switch {
	case a.Same(limit.SlidingLog()):
		return newSlidingLog(quota, window), nil
	case a.Same(limit.SlidingCounter(1, limit.Strict)):
		return newSlidingCounter(quota, window, int64(a.Buckets()), a.Rounding()), nil
	case a.Same(limit.GCRA()):
		return newGCRA(quota, window, burst), nil
	case a.Same(limit.FixedWindow()):
		return &fixedWindow{quota: quota, window: window}, nil
	}
	return nil, fmt.Errorf("%w: there is no model of %q", limit.ErrInvalidAlgorithm, a)
}

// key puts a tally and the key's own clock together: this part is the same for
// all algorithms.
type key struct {
	clock    clock
	capacity int64
	units    tally
}

func (k *key) Decide(now, cost int64) Outcome {
	t := k.clock.read(now)
	free := k.units.free(t)
	out := Outcome{Allowed: cost >= 1 && cost <= free}
	if out.Allowed {
		k.units.charge(t, cost)
		k.clock.charged(t)
		free = k.units.free(t)
	} else if cost >= 1 && cost <= k.capacity {
		out.RetryAfter = k.units.wait(t, cost)
		out.NextAfter = k.units.wait(t, 1)
	}
	out.Remaining = free
	out.ResetAfter = k.units.reset(t)
	return out
}

func (k *key) Clone() Model {
	c := *k
	c.units = k.units.clone()
	return &c
}
