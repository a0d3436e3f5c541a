package tiered

import (
	"context"
	"fmt"
	"time"

	"github.com/tierlimit/tierlimit/limit"
)

// HoldAll holds the units of all requests or of none, like [Limiter.TakeAll]. All are held for the same
// time or, if life is [LifeOfRule], each for the [HoldLife] of its rule. HoldAll returns a hold for each
// request, and each is settled by itself. It returns nil if the requests are denied.
//
// Errors and deadline are those of TakeAll. The Hold of a request must be 0 or life.
func (l *Limiter) HoldAll(ctx context.Context, life time.Duration, requests ...Request) ([]*Hold, []limit.Decision, error) {
	if life != LifeOfRule { // HoldLife of each rule is checked with its request
		if err := checkLife(life); err != nil {
			return nil, nil, err
		}
	}
	held := make([]Request, len(requests))
	for i, q := range requests {
		if q.Hold != 0 && q.Hold != life {
			return nil, nil, fmt.Errorf("%w: request %d has a Hold of %s, but HoldAll holds all requests for %s; use TakeAll", limit.ErrInvalidHold, i+1, textOf(q.Hold), textOf(life))
		}
		held[i], held[i].Hold = q, life
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
