package tiered

import (
	"context"
	"time"

	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/local"
	"github.com/tierlimit/tierlimit/remote"
)

// acquire is charge of a part in which units may be to be acquired.
func (g *together) acquire(ctx context.Context, s *outage.Shard, part []int, entries []remote.Entry, within time.Duration) ([]remote.Reply, error) {
	entered, err := g.enter(part, within)
	if err != nil {
		return nil, err
	}
	sent := g.limiter.slotNow()
	replies, err := s.DecideAll(context.WithoutCancel(ctx), entries, within) // see Rule.Acquire
	g.leave(part, entered, sent, replies, err)
	return replies, err
}

// enter enters all requests of a part that are to be acquired. It waits for
// a key in doubt with none entered: what Redis is told of the others waits for those that are.
func (g *together) enter(part []int, within time.Duration) ([]*local.Held[*Rule], error) {
	for until := time.Now().Add(within); ; {
		entered, wait := g.enterAll(part)
		if wait == nil {
			return entered, nil
		}
		if err := g.limiter.awaitTold(wait, until); err != nil {
			return nil, err
		}
	}
}

func (g *together) enterAll(part []int) (entered []*local.Held[*Rule], wait <-chan struct{}) {
	table := g.limiter.slots.table
	entered = make([]*local.Held[*Rule], len(part))
	for j, i := range part {
		r := g.questions[i].rule
		if r.slots == nil {
			continue
		}
		if entered[j], wait = table.Enter(r.heldKey(&g.questions[i].key), r, r.slots.ttl); wait == nil {
			continue
		}
		for _, h := range entered {
			if h != nil {
				h.Left(g.limiter.now(), -1)
			}
		}
		return nil, wait
	}
	return entered, nil
}

// leave takes note of what has come of the requests of a part that were entered.
func (g *together) leave(part []int, entered []*local.Held[*Rule], sent int64, replies []remote.Reply, err error) {
	for j, i := range part {
		if entered[j] == nil {
			continue
		}
		var reply remote.Reply
		if err == nil {
			reply = replies[j]
		}
		q := &g.questions[i]
		if slots := q.rule.leave(entered[j], &q.key, q.cost, sent, &reply, err); slots != nil {
			g.grants[i].Slot = slots[0]
		}
	}
}
