package tiered

import (
	"context"
	"fmt"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/plan"
)

// check returns an error if the call is a mistake. It needs no trip (law 6).
func (r *Rule) check(ctx context.Context, key string, cost int64) error {
	if r.slotTTL != 0 {
		return fmt.Errorf("%w: rule %q has the limit %v, whose units are held and given back: use Acquire, AcquireWait or TakeAll", limit.ErrNotForLimit, r.name, r.given)
	}
	return r.checkCall(ctx, key, cost)
}

// checkCall is check for rules of all limits.
func (r *Rule) checkCall(ctx context.Context, key string, cost int64) error {
	switch {
	case r.limiter.closed.Load():
		return limit.ErrClosed
	case ctx == nil:
		return limit.ErrNilContext
	case key == "":
		return fmt.Errorf("%w: the key for rule %q is empty", limit.ErrInvalidKey, r.name)
	case len(key) > limit.MaxKey:
		return fmt.Errorf("%w: the key for rule %q has %d bytes, must have at most %d", limit.ErrInvalidKey, r.name, len(key), limit.MaxKey)
	case cost < 1:
		return fmt.Errorf("%w: the cost for rule %q is %d, must be at least 1", limit.ErrInvalidCost, r.name, cost)
	case cost > r.maxCost:
		return r.tooMuch(cost, r.maxCost)
	}
	return ctx.Err()
}

func (r *Rule) tooMuch(cost, most int64) error {
	return fmt.Errorf("%w: cost %d, rule %q grants at most %d at once (%v, %v)", limit.ErrCostExceedsLimit, cost, r.name, most, r.given, plan.Candidate{Limit: r.limit, Algorithm: r.algorithm})
}

// checkSlots is check for calls that acquire slots.
func (r *Rule) checkSlots(ctx context.Context, key string, units int64) error {
	if r.slotTTL == 0 {
		return fmt.Errorf("%w: rule %q has the limit %v, whose units are used up and not given back: use Allow", limit.ErrNotForLimit, r.name, r.given)
	}
	return r.checkCall(ctx, key, units)
}

// checkNumber checks how many requests one call has.
func checkNumber(requests []Request) error {
	if n := len(requests); n > MaxTogether {
		return fmt.Errorf("%w: %d requests together, must be at most %d", limit.ErrInvalidRule, n, MaxTogether)
	}
	return nil
}

// checkRules checks that the rules of all requests are the limiter's. It must be called before anything else is done
// with the rules.
func (l *Limiter) checkRules(requests []Request) error {
	for i := range requests {
		if !l.owns(requests[i].Rule) {
			return fmt.Errorf("%w: the rule of request %d is nil, or belongs to another limiter", limit.ErrInvalidRule, i+1)
		}
	}
	return nil
}

func (l *Limiter) owns(r *Rule) bool { return r != nil && r.limiter == l }

// countMistake counts an error that ends a call of several requests, for each of the limiter's rules.
func (l *Limiter) countMistake(requests []Request, err error) {
	for _, q := range requests {
		if l.owns(q.Rule) {
			q.Rule.count(q.Key, nil, err)
		}
	}
}

func (l *Limiter) checkAll(ctx context.Context, requests []Request, check func(*Request, context.Context) error) error {
	if err := checkNumber(requests); err != nil {
		return err
	}
	type counter struct{ rule, key string }
	seen := make(map[counter]int) // the number of the request, counted from 1
	work := int64(0)
	for i := range requests {
		q := &requests[i]
		if err := check(q, ctx); err != nil {
			return err
		}
		if q.Rule.config.countDenied {
			return fmt.Errorf("%w: rule %q counts denied requests (CountDenied), so it cannot be part of an all-or-none call; use AllowEach", limit.ErrInvalidRule, q.Rule.name)
		}
		key := counter{q.Rule.name, q.Key}
		if first := seen[key]; first != 0 {
			return fmt.Errorf("%w: requests %d and %d have the same rule, %q, and the same key; combine them into one request with the sum of their costs", limit.ErrInvalidRule, first, i+1, q.Rule.name)
		}
		seen[key] = i + 1
		work += q.Rule.encoded.Work(q.Cost)
	}
	// The requests cannot be divided among trips, and while Redis writes their units it serves nobody else
	// (law 7).
	if work > maxWork {
		return fmt.Errorf("%w: the %d requests write %d log units together, must be at most %d: use smaller costs, fewer requests, or an algorithm that is not a log", limit.ErrInvalidCost, len(requests), work, maxWork)
	}
	return nil
}

// checkForGood checks a request whose units will be used up.
func (q *Request) checkForGood(ctx context.Context) error {
	if q.Hold != 0 {
		return fmt.Errorf("%w: the request for rule %q has a Hold (%s), but this call charges units for good; use TakeAll", limit.ErrInvalidHold, q.Rule.name, textOf(q.Hold))
	}
	return q.Rule.check(ctx, q.Key, q.Cost)
}

// checkTaken checks a request whose units may come back.
func (q *Request) checkTaken(ctx context.Context) error {
	r := q.Rule
	if q.Hold != 0 && r.slotTTL != 0 {
		return fmt.Errorf("%w: the request for rule %q has a Hold (%s), but the limit is %v, whose units are kept until they are released; Hold must be 0", limit.ErrNotForLimit, r.name, textOf(q.Hold), r.given)
	}
	if q.Hold != 0 {
		if err := r.checkHold(q.Hold); err != nil {
			return err
		}
	}
	return r.checkCall(ctx, q.Key, q.Cost)
}
