package tiered

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// Request is one of several that are decided together by [Limiter.AllowAll].
type Request struct {
	Rule *Rule
	Key  string
	Cost int64
}

// MaxTogether is how many requests [Limiter.AllowAll] takes at once: what one trip carries, so
// that nobody waits for somebody else's list.
const MaxTogether = maxBatch

// AllowAll charges all requests or none (law 9): a tenant's quota and an endpoint's
// limit, say. It returns a decision for each; all of them are Allowed, or none is.
// Those that stood in the way are Denied and have a RetryAfter, the others are HeldBack,
// and counted as such. No two requests may be for the same rule and key, and there may be no more than
// [MaxTogether]. Rules on a dry run stand in nobody's way, see [DryRun].
//
// It takes one trip to Redis. On a Cluster requests for the same key share a slot;
// where keys lie in different slots they are charged one slot after the other, and
// refunded if a later one denies. In between, for the time of a trip, other requests
// may be denied for units that are then given back; never is more granted. Units
// whose refund is lost stay charged until they leave the window. Requests whose master is
// lost are decided by their rules' outage policies, the others by Redis.
//
// Errors and deadline are those of [Rule.AllowN]; refunding may take as long again.
func (l *Limiter) AllowAll(ctx context.Context, requests ...Request) ([]limit.Decision, error) {
	return l.allowOrAcquireAll(ctx, requests, nil)
}

// allowOrAcquireAll is AllowAll if slots is nil, otherwise AcquireAll: they are put there.
func (l *Limiter) allowOrAcquireAll(ctx context.Context, requests []Request, slots []*Slot) ([]limit.Decision, error) {
	for i := range requests {
		if requests[i].isDryRun() {
			return l.allowAllBesideDryRuns(ctx, requests, slots)
		}
	}
	return l.allowAll(ctx, requests, slots)
}

func (l *Limiter) allowAll(ctx context.Context, requests []Request, slots []*Slot) ([]limit.Decision, error) {
	return l.allowAllOf(ctx, requests, questionsOf(requests), slots)
}

// questionsOf are the questions that requests ask; of one without a rule, which is a mistake, none.
func questionsOf(requests []Request) []question {
	questions := make([]question, len(requests))
	for i, q := range requests {
		if q.Rule != nil {
			questions[i] = q.Rule.ask(q.Key, q.Cost, lua.Take)
		}
	}
	return questions
}

func (l *Limiter) allowAllOf(ctx context.Context, requests []Request, questions []question, slots []*Slot) ([]limit.Decision, error) {
	decisions, err := l.decideAll(ctx, requests, questions, slots)
	for i, q := range requests {
		var d *limit.Decision
		if err == nil {
			d = &decisions[i]
		}
		if q.Rule != nil {
			q.Rule.count(q.Key, d, err)
		}
	}
	return decisions, err
}

func (l *Limiter) decideAll(ctx context.Context, requests []Request, questions []question, slots []*Slot) ([]limit.Decision, error) {
	check := (*Rule).check
	if slots != nil {
		check = (*Rule).checkCall
		l.roundOfSlots()
	}
	if err := l.checkAll(ctx, requests, check); err != nil {
		return nil, err
	}
	now := l.now()
	decisions := make([]limit.Decision, len(questions))
	known := false
	for i := range questions {
		q := &questions[i]
		d, denied := q.rule.remembered(q.key.hash, now, q.cost)
		if !denied {
			d = q.rule.heldBack(limit.TierLocal)
		}
		decisions[i] = d
		known = known || denied
	}
	if known || len(requests) == 0 {
		return decisions, nil
	}
	g := together{limiter: l, questions: questions, entries: entriesOf(questions), decisions: decisions, slots: slots}
	if !g.reserve() {
		return decisions, nil
	}
	var parts [][]int
	if _, oneNode := l.client.(*redis.Client); oneNode {
		parts = [][]int{everyOne(len(requests))}
	} else {
		parts = remote.BySlot(g.entries)
	}
	return g.decide(ctx, parts)
}

// checkTogether checks what all requests must keep to that are decided in one call.
func (l *Limiter) checkTogether(requests []Request) error {
	if n := len(requests); n > MaxTogether {
		return fmt.Errorf("%w: %d requests together, must be at most %d", limit.ErrInvalidRule, n, MaxTogether)
	}
	for i := range requests {
		if r := requests[i].Rule; r == nil || r.limiter != l {
			return fmt.Errorf("%w: a request's rule is nil or of another limiter", limit.ErrInvalidRule)
		}
	}
	return nil
}

func (l *Limiter) checkAll(ctx context.Context, requests []Request, check func(*Rule, context.Context, string, int64) error) error {
	if err := l.checkTogether(requests); err != nil {
		return err
	}
	type counter struct{ rule, key string }
	seen := make(map[counter]int) // by the number of the request, from 1
	for i := range requests {
		q := &requests[i]
		if q.Rule.config.countDenied {
			return fmt.Errorf("%w: rule %q counts what is denied, and so cannot be charged all or none; use AllowEach", limit.ErrInvalidRule, q.Rule.name)
		}
		if err := check(q.Rule, ctx, q.Key, q.Cost); err != nil {
			return err
		}
		key := counter{q.Rule.name, q.Key}
		if first := seen[key]; first != 0 {
			return fmt.Errorf("%w: requests %d and %d are of rule %q and the same key; add their costs up", limit.ErrInvalidRule, first, i+1, q.Rule.name)
		}
		seen[key] = i + 1
	}
	return nil
}
