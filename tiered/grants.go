package tiered

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Grant has the hold or slot that a request of [Limiter.TakeAll] was granted. Both fields are nil
// for units that are charged for good.
type Grant struct {
	Hold *Hold // of a request with a Hold
	Slot *Slot // of a request whose rule has a limit of [limit.Concurrent]
}

// Grants has the grants of a [Limiter.TakeAll], in the order of the requests. Its methods end or
// extend all of them at the same time, so that they share trips to Redis. They may be called on
// nil, and are safe for concurrent use.
type Grants []Grant

// Settle settles each hold with the given units, which were used, and releases all slots. If holds
// used different numbers of units, settle each by itself, and then call [Grants.End].
//
// Errors are those of [Hold.Settle]. If units is out of range, nothing is changed; otherwise the
// error is that of some holds, while the others are settled and all slots released.
func (g Grants) Settle(ctx context.Context, units int64) error {
	if err := checkUsed(units); err != nil {
		return err
	}
	return g.end(func(h *Hold) error { return h.Settle(ctx, units) })
}

// End ends all grants that have not been ended yet: it cancels the holds, as [Hold.Cancel] does,
// and releases the slots. After [Grants.Settle] it does nothing, so it may be deferred. Errors are
// those of Cancel.
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
