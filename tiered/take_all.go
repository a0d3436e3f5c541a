package tiered

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tierlimit/tierlimit/limit"
)

// TakeAll is [Limiter.AllowAll] for requests whose units may also come back: it charges, holds and
// acquires all of them or none (law 9), in one trip to Redis where AllowAll takes one. A request's
// units
//
//   - are acquired, as by [Rule.Acquire], if its rule has a limit of [limit.Concurrent];
//   - are held for that time, as by [Rule.Hold], if the request has a Hold;
//   - are charged for good otherwise.
//
// It returns a grant for each request, with its slot or hold, or nil if the requests are denied;
// and a decision for each, as AllowAll does. End the grants with [Grants.Settle] or [Grants.End],
// or each hold and slot by itself.
//
// If a request is denied, on a Cluster those of other slots are given back, within the deadline or
// later: none of their holds and slots is left, even if answers are lost. If the answer to the
// refund of units that were charged for good is lost, they stay charged until they leave the
// window.
//
// Errors and deadline are those of AllowAll and [Rule.Hold]; and [limit.ErrNotForLimit], for a Hold
// with a limit of limit.Concurrent. If a request acquires units, and ctx ends after Redis was
// asked, the call continues, and returns the grants without an error, because otherwise it would
// not be known whether the units were acquired.
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

// Grant is what a request of [Limiter.TakeAll] was granted, as far as that is to be ended one day: of units
// charged for good both fields are nil.
type Grant struct {
	Hold *Hold // of a request with a Hold
	Slot *Slot // of a request whose rule has a limit of [limit.Concurrent]
}

// Grants are what the requests of a [Limiter.TakeAll] were granted, each at the place of its request. The
// methods end or extend all of them at the same time, so that they share trips to Redis. They may be
// called on nil, and are safe for concurrent use.
type Grants []Grant

// Settle settles all holds with what was used, units for each, and releases all slots. Where holds
// took different numbers of units, settle each by itself, and then call [Grants.End].
//
// Errors are those of [Hold.Settle]: of units out of range, which changes nothing; else those of some
// holds, while the others are settled and all slots released.
func (g Grants) Settle(ctx context.Context, units int64) error {
	if err := checkUsed(units); err != nil {
		return err
	}
	return g.end(func(h *Hold) error { return h.Settle(ctx, units) })
}

// End ends what has not been ended yet: it cancels the holds, as [Hold.Cancel] does, and releases the
// slots. After [Grants.Settle] it does nothing, so it may be deferred. Errors are those of Cancel.
func (g Grants) End(ctx context.Context) error {
	return g.end(func(h *Hold) error { return h.Cancel(ctx) })
}

// Extend makes all holds last for life from now on, as [Hold.Extend] does. Slots last until they
// are released anyway. Errors are those of some holds; the others are extended.
func (g Grants) Extend(ctx context.Context, life time.Duration) error {
	return g.each(func(h *Hold) error { return h.Extend(ctx, life) }, nil)
}

func (g Grants) end(hold func(*Hold) error) error { return g.each(hold, (*Slot).Release) }

// each calls hold and slot for all of them, at the same time.
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
