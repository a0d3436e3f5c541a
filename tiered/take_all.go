package tiered

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tierlimit/tierlimit/limit"
)

// TakeAll is like [Limiter.AllowAll], but can also hold units and acquire slots. It takes the units of
// all requests or of none (law 9), in one trip to Redis if AllowAll takes one. A request's units
//
//   - are acquired, as by [Rule.Acquire], if its rule has a limit of [limit.Concurrent];
//   - are held, as by [Rule.Hold], if the request has a Hold;
//   - are charged for good otherwise.
//
// TakeAll returns a grant for each request, with its slot or hold, or nil if the requests are denied. It
// also returns a decision for each request, as AllowAll does. End the grants with [Grants.Settle] or
// [Grants.End], or end each hold and slot by itself.
//
// If a request is denied on a Cluster, units that were already taken in other hash slots are given back,
// within the deadline or later. Units in holds and slots are always given back, even if answers are lost.
// But if the answer to a refund of units that were charged for good is lost, those units may stay charged
// until they leave the window.
//
// Errors and deadline are those of AllowAll and [Rule.Hold]. In addition, errors wrap
// [limit.ErrNotForLimit] if a request with a limit of limit.Concurrent has a Hold. If a request acquires
// a slot and ctx ends after Redis was asked, the call continues and returns the grants without an error,
// because otherwise nobody would know whether the slot was acquired.
func (l *Limiter) TakeAll(ctx context.Context, requests ...Request) (Grants, []limit.Decision, error) {
	grants := make(Grants, len(requests))
	decisions, err := l.decideTogether(ctx, requests, grants)
	if err != nil {
		return nil, nil, err
	}
	if len(decisions) > 0 && !decisions[0].Allowed {
		return nil, decisions, nil
	}
	return grants, decisions, nil
}

// HoldAll holds the units of all requests or of none, like [Limiter.TakeAll]. All are held for the same
// time or, if life is [LifeOfRule], each for the [HoldLife] of its rule. HoldAll returns a hold for each
// request, and each is settled by itself. It returns nil if the requests are denied.
//
// Errors and deadline are those of TakeAll. The Hold of a request must be 0 or life.
func (l *Limiter) HoldAll(ctx context.Context, life time.Duration, requests ...Request) ([]*Hold, []limit.Decision, error) {
	held, err := heldFor(life, requests)
	if err != nil {
		l.countMistake(requests, err)
		return nil, nil, err
	}
	grants, decisions, err := l.TakeAll(ctx, held...)
	if grants == nil {
		return nil, decisions, err
	}
	holds := make([]*Hold, len(grants))
	for i := range grants {
		holds[i] = grants[i].Hold
	}
	return holds, decisions, nil
}

// heldFor returns the requests with the Hold that HoldAll gives them.
func heldFor(life time.Duration, requests []Request) ([]Request, error) {
	if life != LifeOfRule { // HoldLife of each rule is checked with its request
		if err := checkLife(life); err != nil {
			return nil, err
		}
	}
	held := slices.Clone(requests)
	for i, q := range requests {
		if q.Hold != 0 && q.Hold != life {
			return nil, fmt.Errorf("%w: request %d has a Hold of %s, but HoldAll holds all requests for %s; use TakeAll", limit.ErrInvalidHold, i+1, textOf(q.Hold), textOf(life))
		}
		held[i].Hold = life
	}
	return held, nil
}

// Grant is the hold or slot that a request of [Limiter.TakeAll] was granted. If the request's units were
// charged for good, both fields are nil.
type Grant struct {
	Hold *Hold // if the request has a Hold
	Slot *Slot // if the request's rule has a limit of [limit.Concurrent]
}

// Grants has a [Grant] for each request of a [Limiter.TakeAll], in the order of the requests. Its methods
// end or extend all grants at the same time, so that the grants share trips to Redis. The methods may be
// called on nil Grants, and are safe for concurrent use.
type Grants []Grant

// Settle settles each hold with the given number of units, and releases all slots. If holds used
// different numbers of units, settle each by itself, and then call [Grants.End].
//
// Errors are those of [Hold.Settle]. If units is out of range, nothing changes. Any other error comes
// from one or more of the holds; the other holds are settled and all slots are released nevertheless.
func (g Grants) Settle(ctx context.Context, units int64) error {
	if err := checkUsed(units); err != nil {
		return err
	}
	return g.each(func(h *Hold) error { return h.Settle(ctx, units) }, (*Slot).Release)
}

// End cancels all holds that have not been settled, as [Hold.Cancel] does, and releases all slots. After
// [Grants.Settle] it does nothing, so it may be deferred. Errors are those of Cancel.
func (g Grants) End(ctx context.Context) error {
	return g.each(func(h *Hold) error { return h.Cancel(ctx) }, (*Slot).Release)
}

// Extend extends all holds, as [Hold.Extend] does. Slots need no extension: they last until they are
// released. An error comes from one or more of the holds; the others are extended nevertheless.
func (g Grants) Extend(ctx context.Context, life time.Duration) error {
	return g.each(func(h *Hold) error { return h.Extend(ctx, life) }, nil)
}

// each calls hold for all holds and, if slot is not nil, slot for all slots, all at the same time.
func (g Grants) each(hold func(*Hold) error, slot func(*Slot)) error {
	errs := make([]error, len(g))
	var trips sync.WaitGroup
	for i, grant := range g {
		if grant.Hold != nil {
			trips.Go(func() { errs[i] = hold(grant.Hold) })
		}
		if grant.Slot != nil && slot != nil {
			trips.Go(func() { slot(grant.Slot) })
		}
	}
	trips.Wait()
	return errors.Join(errs...)
}
