package tiered

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tierlimit/tierlimit/breaker"
	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
)

// group decides requests that must all be charged or none. It decides them in parts. On a Cluster, a
// part is the requests of one hash slot; otherwise all requests are one part. A part is decided by its
// master or, if the master cannot be reached, by the rules' outage policies. As soon as a part is denied,
// the group takes back the charges of the other parts.
type group struct {
	limiter   *Limiter
	questions []question
	entries   []remote.Entry // one per question
	decisions []limit.Decision

	grants   Grants // where slots and holds are stored; nil for AllowAll
	acquires bool   // at least one request acquires a slot

	reserved []outage.Reserved // units of this instance's share, for rules that settle; nil: none
	granted  []granting        // requests that were granted without Redis
}

// granting is a request that was granted without Redis, and the reason.
type granting struct {
	request int
	why     error
}

// reserve reserves units of this instance's share for each request whose rule is settling. If the
// share denies one of them, reserve decides all requests and returns false.
func (g *group) reserve(ctx context.Context) bool {
	for i := range g.questions {
		q := &g.questions[i]
		s := q.shard()
		var own outage.Reserved
		var denial limit.Decision
		ok := true
		switch {
		case q.rule.slotTTL != 0:
			own.Units, denial, ok = q.reserveSlots(1)
		case s.Breaker.Closed() && s.Settling(q.rule.inOutage):
			asked := q.request()
			own, denial, ok = s.Reserve(&asked)
		}
		if !ok {
			g.denyBy(i, denial)
			if q.rule.slotTTL == 0 {
				s.DelayDenied(ctx)
			}
			return false
		}
		if own.Units > 0 {
			if g.reserved == nil {
				g.reserved = make([]outage.Reserved, len(g.questions))
			}
			g.reserved[i] = own
		}
	}
	return true
}

// denyBy decides all requests without Redis: request i is denied by d, and the others are held back.
func (g *group) denyBy(i int, d limit.Decision) {
	g.unreserveAll()
	for j := range g.questions {
		other := g.questions[j].rule
		g.decisions[j] = other.heldBack(d.Tier)
		g.decisions[j].ResetAfter = other.limit.Window()
	}
	g.decisions[i] = d
}

// unreserve gives back the units that are reserved for request i. Grants by Redis have been recorded by
// then; grants without Redis are recorded afterwards.
func (g *group) unreserve(i int) {
	if g.reserved == nil || g.reserved[i].Units == 0 {
		return
	}
	if q := &g.questions[i]; q.rule.slotTTL != 0 {
		q.unreserveSlots(g.reserved[i].Units)
	} else {
		asked := q.request()
		q.shard().Release(&asked, g.reserved[i])
	}
	g.reserved[i] = outage.Reserved{}
}

func (g *group) unreserveAll() {
	for i := range g.reserved {
		g.unreserve(i)
	}
}

// decide decides the parts. Each part is a list of positions of requests. All parts share one deadline (law 7). The
// end of ctx is an error only if it would be one for a single call (law 6).
func (g *group) decide(ctx context.Context, parts [][]int) ([]limit.Decision, error) {
	defer g.unreserveAll()
	if len(parts) > 1 { // Close waits, so that what was charged can be taken back
		if !g.limiter.lines.begin() {
			return nil, limit.ErrClosed
		}
		defer g.limiter.lines.asks.Done()
	}
	deadline := time.Now().Add(remote.Within(ctx, g.limiter.config.deadline))
	for i := range g.decisions {
		g.decisions[i] = g.questions[i].rule.heldBack(limit.TierRedis) // in case another request is denied
	}
	// Parts that need no trip come first.
	slices.SortStableFunc(parts, func(a, b []int) int { return g.trips(a) - g.trips(b) })
	for _, part := range parts {
		err := breaker.ErrOpen
		if g.trips(part) > 0 {
			if err = g.charge(ctx, part, time.Until(deadline)); err != nil && !g.limiter.leavesToPolicy(err) {
				g.takeBack(ctx)
				return nil, err
			}
		}
		for _, i := range part {
			g.unreserve(i)
		}
		if err != nil {
			g.fallBack(part, err)
		}
		if slices.ContainsFunc(part, func(i int) bool { return !g.decisions[i].Allowed }) {
			g.takeBack(ctx)
			break
		}
	}
	return g.decisions, nil
}

// trips returns the number of trips that a part needs: 1, or 0 if its master is lost.
func (g *group) trips(part []int) int {
	if g.questions[part[0]].shard().Breaker.Closed() {
		return 1
	}
	return 0
}

// charge asks Redis to decide a part, within the given time.
func (g *group) charge(ctx context.Context, part []int, within time.Duration) error {
	entries := some(g.entries, part)
	var replies []remote.Reply
	var err error
	if s := g.questions[part[0]].shard(); !g.acquires {
		replies, err = s.DecideAll(ctx, entries, within)
	} else {
		replies, err = g.acquire(ctx, s, part, entries, within)
	}
	if err != nil {
		return err
	}
	for j, i := range part {
		g.questions[i].fromRedis(&g.decisions[i], &replies[j])
	}
	return nil
}

// fallBack decides a part by the rules' outage policies; err is the reason.
func (g *group) fallBack(part []int, err error) {
	for _, i := range part {
		q := &g.questions[i]
		if q.rule.slotTTL != 0 {
			g.grants[i].Slot, g.decisions[i] = q.acquireAlone(err)
			continue
		}
		q.fallback(&g.decisions[i], g.limiter.now(), err)
		if g.decisions[i].Allowed {
			g.granted = append(g.granted, granting{i, err})
		}
	}
}

// takeBack gives back everything that was charged, because another request is denied. All refunds in
// Redis are made at the same time. They are made even if ctx has ended, but takeBack waits for them no
// longer than [DecideBy] allows.
func (g *group) takeBack(ctx context.Context) {
	l := g.limiter
	for _, by := range g.granted {
		q := &g.questions[by.request]
		asked := q.request()
		q.shard().Undo(&asked, by.why)
		g.holdBack(by.request)
	}
	var refunds sync.WaitGroup
	for i := range g.grants {
		if slot := g.grants[i].Slot; slot != nil {
			refunds.Go(slot.Release)
			g.grants[i].Slot = nil
			g.holdBack(i)
		}
	}
	for i := range g.decisions {
		if !g.decisions[i].Allowed || g.questions[i].rule.slotTTL != 0 {
			continue // of the remaining requests, those that are Allowed were charged by Redis
		}
		q, at := &g.questions[i], g.decisions[i].ChargedAt
		refunds.Go(func() {
			if q.key.hold != nil {
				l.settle(context.Background(), q.rule.cancelling(&q.key, q.cost))
			} else if err := q.rule.giveBack(context.Background(), &q.key, q.cost, 0, at); err != nil {
				l.log.Warn("take back", "units of a request could not be given back after another request of the same call was denied", "error", err)
			}
		})
		g.holdBack(i)
	}
	within := remote.TimeLeft(ctx, forever)
	if within != forever {
		l.lines.asks.Go(refunds.Wait)
	}
	awaitUntil(&refunds, within)
}

const forever = time.Duration(math.MaxInt64)

// awaitUntil waits until all goroutines of the group have finished, or the given time has passed.
func awaitUntil(all *sync.WaitGroup, within time.Duration) {
	if within == forever {
		all.Wait()
		return
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(within):
	}
}

// holdBack marks a request that would have been granted as held back.
func (g *group) holdBack(i int) {
	d := &g.decisions[i]
	d.Allowed, d.HeldBack, d.Granted, d.ChargedAt = false, true, 0, 0
	q := &g.questions[i] // without Redis, all of its capacity may remain after a grant
	d.Remaining = min(d.Remaining+q.cost, q.rule.capacity)
}

func entriesOf(questions []question) []remote.Entry {
	entries := make([]remote.Entry, len(questions))
	for i := range questions {
		entries[i] = questions[i].entry()
		entries[i].Group = 1
	}
	return entries
}

// some returns the entries at some positions.
func some(entries []remote.Entry, positions []int) []remote.Entry {
	if len(positions) == len(entries) {
		return entries
	}
	some := make([]remote.Entry, len(positions))
	for i, at := range positions {
		some[i] = entries[at]
	}
	return some
}

// acquire asks Redis to decide a part that may acquire slots; see charge.
func (g *group) acquire(ctx context.Context, s *outage.Shard, part []int, entries []remote.Entry, within time.Duration) (replies []remote.Reply, err error) {
	questions := make([]*question, len(part))
	for j, i := range part {
		questions[j] = &g.questions[i]
	}
	ctx, entered, err := g.limiter.enterSlots(ctx, within, questions...)
	if err != nil {
		return nil, err
	}
	sent := g.limiter.slotNow()
	err = remote.ErrNoAnswer // unless DecideAll returns, see leaveSlots
	defer func() {
		if err != nil {
			replies = make([]remote.Reply, len(part))
		}
		for j, i := range part {
			if entered[j] == nil {
				continue
			}
			if slots := questions[j].leaveSlots(entered[j], sent, &replies[j], err); slots != nil {
				g.grants[i].Slot = slots[0]
			}
		}
	}()
	replies, err = s.DecideAll(context.WithoutCancel(ctx), entries, within) // see Rule.Acquire
	return replies, err
}
