package tiered

import (
	"context"
	"time"

	"github.com/tierlimit/tierlimit/limit"
)

// HoldAll holds the units (Cost) of all requests or of none, in one trip, as [Limiter.AllowAll]
// charges them. It returns a hold for each, or none if the requests are denied, and a decision for
// each. Each hold is settled by itself. Rules on a dry run stand in nobody's way.
//
// Errors and deadline are those of AllowAll and of [Rule.Hold].
func (l *Limiter) HoldAll(ctx context.Context, life time.Duration, requests ...Request) ([]*Hold, []limit.Decision, error) {
	if err := l.checkTogether(requests); err != nil {
		return nil, nil, err
	}
	var real []Request
	for i := range requests {
		if err := requests[i].Rule.checkHold(life); err != nil {
			return nil, nil, err
		}
		if !requests[i].isDryRun() {
			real = append(real, requests[i])
		}
	}
	rest, cancel := context.WithTimeout(ctx, l.config.deadline) // for the dry runs, see AllowAll
	defer cancel()
	held, decided, err := l.holdAll(ctx, life, real)
	if err != nil {
		return nil, nil, err
	}
	granted := len(real) == 0 || decided[0].Allowed
	holds, decisions := make([]*Hold, len(requests)), make([]limit.Decision, len(requests))
	for i, q := range requests {
		switch {
		case !q.isDryRun():
			holds[i], decisions[i] = held[0], decided[0]
			held, decided = held[1:], decided[1:]
		case granted:
			holds[i], decisions[i], _ = q.Rule.Hold(rest, q.Key, q.Cost, life) // has no errors
		default:
			decisions[i] = q.Rule.heldBack(limit.TierLocal)
			decisions[i].DryRun = true
		}
	}
	if !granted {
		return nil, decisions, nil
	}
	return holds, decisions, nil
}

// holdAll is HoldAll without dry runs.
func (l *Limiter) holdAll(ctx context.Context, life time.Duration, requests []Request) ([]*Hold, []limit.Decision, error) {
	questions := questionsOf(requests)
	for i := range questions {
		questions[i].key.hold = l.newHolding(life)
	}
	asked := l.now()
	decisions, err := l.allowAllOf(ctx, requests, questions, nil)
	holds := make([]*Hold, len(requests))
	for i, q := range requests {
		if err != nil {
			q.Rule.abandon(&questions[i].key, q.Cost, err)
			continue
		}
		holds[i] = q.Rule.newHold(&questions[i].key, q.Cost, &decisions[i], asked)
	}
	return holds, decisions, err
}
