package tiered

import (
	"context"
	"slices"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// Request is one of several requests that are decided together by [Limiter.AllowAll],
// [Limiter.TakeAll], [Limiter.HoldAll] or [Limiter.AllowEach].
type Request struct {
	Rule *Rule
	Key  string
	Cost int64
	// Hold is how long TakeAll holds the units, as [Rule.Hold] does, to be settled later: 1 ms to a
	// day, or [LifeOfRule]. If it is 0, the units are charged for good or, if the rule has a limit of
	// [limit.Concurrent], acquired as a slot. With such a rule it must be 0.
	Hold time.Duration
}

// MaxTogether is the largest number of requests that can be decided together. It is as many as one
// trip carries, so that no caller waits for another's long list.
const MaxTogether = maxBatch

// AllowAll charges all requests or none (law 9), for example against a tenant's quota and an endpoint's
// limit. It returns a decision for each request; either all are Allowed or none is. If none is Allowed,
// the requests that their own limit denied are Denied and have a RetryAfter. The others are HeldBack, and
// counted as such. No two requests may have the same rule and key, and there may be at most [MaxTogether]
// requests. Rules on a dry run never deny the others; see [DryRun].
//
// AllowAll takes one trip to Redis. On a Cluster, requests for the same key share a hash slot. Keys in
// different hash slots are charged one hash slot after another, and refunded if a later one denies.
// During such a trip, other requests may be denied because of units that are about to be given back; more
// than the limit is never granted. Units whose refund is lost stay charged until they leave the window.
// Requests whose master is lost are decided by their rules' outage policies, the others by Redis.
//
// Errors and deadline are those of [Rule.AllowN]; refunding may take as long again. Because a log writes
// each unit, the costs of all requests under logs may add up to 100,000 units at most; above that, the
// error wraps [limit.ErrInvalidCost]. (In a sorted set a unit counts as 20.) Requests that acquire slots
// or hold units need [Limiter.TakeAll]; for them AllowAll returns an error that wraps
// [limit.ErrNotForLimit] or [limit.ErrInvalidHold]. If there are too many requests, or two have the same
// rule and key, or a rule counts denied requests ([CountDenied]), is nil or belongs to another limiter,
// the error wraps [limit.ErrInvalidRule].
func (l *Limiter) AllowAll(ctx context.Context, requests ...Request) ([]limit.Decision, error) {
	return l.decideTogether(ctx, requests, nil)
}

// decideTogether implements AllowAll if grants is nil. Otherwise it implements TakeAll, and stores the
// grants in grants.
func (l *Limiter) decideTogether(ctx context.Context, requests []Request, grants Grants) ([]limit.Decision, error) {
	err := l.checkRules(requests)
	if err == nil && ctx == nil {
		err = limit.ErrNilContext
	}
	if err != nil {
		l.countMistake(requests, err)
		return nil, err
	}
	if slices.ContainsFunc(requests, Request.isDryRun) {
		return l.decideBesideDryRuns(ctx, requests, grants)
	}
	asked, questions := l.now(), l.questionsOf(requests)
	decisions, err := l.decideAll(ctx, requests, questions, grants)
	for i, q := range requests {
		var d *limit.Decision
		if err == nil {
			d = &decisions[i]
		}
		q.Rule.count(q.Key, d, err)
		if grants != nil && questions[i].key.hold != nil {
			grants[i].Hold = questions[i].newHold(d, err, asked)
		}
	}
	return decisions, err
}

// questionsOf returns a question for each request.
func (l *Limiter) questionsOf(requests []Request) []question {
	questions := make([]question, len(requests))
	for i, q := range requests {
		questions[i].begin(q.Rule, q.Key, q.Cost, lua.Take)
		if q.Hold != 0 {
			questions[i].key.hold = l.newHolding(q.Rule.lifeOf(q.Hold))
		}
	}
	return questions
}

func (l *Limiter) decideAll(ctx context.Context, requests []Request, questions []question, grants Grants) ([]limit.Decision, error) {
	check := (*Request).checkForGood
	if grants != nil {
		check = (*Request).checkTaken
	}
	if err := l.checkAll(ctx, requests, check); err != nil {
		return nil, err
	}
	acquires := slices.ContainsFunc(requests, func(q Request) bool { return q.Rule.slotTTL != 0 })
	if acquires {
		l.roundOfSlots()
	}
	now := l.now()
	decisions := make([]limit.Decision, len(questions))
	known := false
	for i := range questions {
		if q := &questions[i]; q.remembered(&decisions[i], now) {
			known = true
		} else {
			decisions[i] = q.rule.heldBack(limit.TierLocal)
		}
	}
	if known || len(requests) == 0 {
		return decisions, nil
	}
	g := group{limiter: l, questions: questions, entries: entriesOf(questions), decisions: decisions, grants: grants, acquires: acquires}
	if !g.reserve(ctx) {
		return decisions, nil
	}
	return g.decide(ctx, l.script.Divide(g.entries))
}
