package tiered

import (
	"cmp"
	"context"
	"sync"

	"github.com/tierlimit/tierlimit/breaker"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// AllowEach decides several requests in one trip to Redis, independently, as if [Rule.AllowN] had
// been called for one after the other. A denied request does not affect the others; for all or none
// see [Limiter.AllowAll]. A Cost of 0 charges nothing, like [Rule.Peek] for a cost of 1. The same
// rule and key may come several times. There may be no more than [MaxTogether] requests.
//
// On a Cluster, AllowEach takes one trip for each hash slot of the keys, all at the same time. One trip
// writes at most 100,000 units under logs. If requests under logs cost more than that together, they are
// divided among several trips, even on a single node.
//
// Errors and deadline are those of [Rule.AllowN]. For units that come back, too many requests, and rules
// that are nil or belong to another limiter, errors are those of [Limiter.AllowAll]. If there is an error,
// other requests may have been charged.
func (l *Limiter) AllowEach(ctx context.Context, requests ...Request) ([]limit.Decision, error) {
	if err := cmp.Or(l.checkRules(requests), checkNumber(requests)); err != nil {
		l.countMistake(requests, err)
		return nil, err
	}
	e := each{limiter: l, asked: make([]question, len(requests)), decisions: make([]limit.Decision, len(requests))}
	err := e.check(ctx, requests)
	if err == nil {
		err = e.decide(ctx)
	}
	dry := true // all rules are on a dry run and return no errors
	for i := range e.asked {
		a := &e.asked[i]
		_ = a.end(&e.decisions[i], cmp.Or(err, e.mistakes[i])) // err applies to all requests, and is returned below
		dry = dry && a.rule.config.dryRun
	}
	if err != nil && !dry {
		return nil, err
	}
	return e.decisions, nil
}

// each holds requests that are decided in one call, independently of each other.
type each struct {
	limiter   *Limiter
	asked     []question
	decisions []limit.Decision

	mistakes map[int]error // mistakes in requests to rules on a dry run, which end only these requests; nil: none

	// together has the positions of the requests that are decided together, and entries has an entry for
	// each of them.
	together []int
	entries  []remote.Entry
}

// check checks all requests. It returns the first error of a request whose rule is not on a dry run.
func (e *each) check(ctx context.Context, requests []Request) (err error) {
	for i := range requests {
		q, operation := requests[i], lua.Take
		if q.Cost == 0 {
			q.Cost, operation = 1, lua.Peek
		}
		e.asked[i].begin(q.Rule, q.Key, q.Cost, operation)
		switch mistake := q.checkForGood(ctx); {
		case mistake == nil:
		case !q.isDryRun():
			err = cmp.Or(err, mistake)
		default:
			if e.mistakes == nil {
				e.mistakes = make(map[int]error)
			}
			e.mistakes[i] = mistake
		}
	}
	return err
}

func (e *each) decide(ctx context.Context) error {
	l := e.limiter
	now := l.now()
	var apart []int
	for i := range e.asked {
		a := &e.asked[i]
		if e.mistakes[i] != nil || a.inMemory(&e.decisions[i], now) {
			continue
		}
		s := a.shard()
		switch {
		case !s.Breaker.Closed():
			a.fallback(&e.decisions[i], l.now(), breaker.ErrOpen)
		case s.Settling(a.rule.inOutage):
			apart = append(apart, i)
		default:
			e.together = append(e.together, i)
		}
	}
	parts := e.parts()
	if len(parts) == 1 && len(apart) == 0 { // the usual case, which needs no goroutine
		return e.ask(ctx, parts[0])
	}
	var trips sync.WaitGroup
	errs := make([]error, len(parts)+len(apart))
	for n, part := range parts {
		trips.Go(func() { errs[n] = e.ask(ctx, part) })
	}
	for n, i := range apart {
		trips.Go(func() {
			errs[len(parts)+n] = e.asked[i].decideSettling(ctx, &e.decisions[i])
		})
	}
	trips.Wait()
	return cmp.Or(errs...)
}

// parts makes the entries and divides them into trips. No trip writes more than a trip may write (law 7).
func (e *each) parts() (parts [][]int) {
	if len(e.together) == 0 {
		return nil
	}
	e.entries = make([]remote.Entry, len(e.together))
	for n, i := range e.together {
		e.entries[n] = e.asked[i].entry()
	}
	for _, part := range e.limiter.script.Divide(e.entries) {
		first, work := 0, int64(0)
		for n, at := range part {
			own := e.entries[at].Rule.Work(e.entries[at].Cost)
			if work += own; work > maxWork && n > first {
				parts, first, work = append(parts, part[first:n]), n, own
			}
		}
		parts = append(parts, part[first:])
	}
	return parts
}

// ask has Redis decide some requests. If Redis does not answer, the rules' policies decide.
func (e *each) ask(ctx context.Context, part []int) error {
	l := e.limiter
	s := e.asked[e.together[part[0]]].shard()
	replies, err := s.DecideAll(ctx, some(e.entries, part), l.config.deadline)
	if err != nil {
		replies = make([]remote.Reply, len(part))
	}
	for n, at := range part {
		i := e.together[at]
		if err := e.asked[i].answered(&e.decisions[i], &replies[n], cmp.Or(err, replies[n].Err)); err != nil {
			return err
		}
	}
	return nil
}
