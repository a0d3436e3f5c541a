package tiered

import (
	"context"
	"time"

	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/local"
	"github.com/tierlimit/tierlimit/remote"
)

// acquire is charge for a part that may acquire slots.
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

// enter enters all requests of a part that acquire slots. It waits for a key in doubt without
// having entered any, because while a key is entered Redis cannot be told what is held of it.
func (g *together) enter(part []int, within time.Duration) ([]*local.Held, error) {
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

func (g *together) enterAll(part []int) (entered []*local.Held, wait <-chan struct{}) {
	table := g.limiter.slots.table
	entered = make([]*local.Held, len(part))
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

// leave records the outcome of the requests of a part that were entered.
func (g *together) leave(part []int, entered []*local.Held, sent int64, replies []remote.Reply, err error) {
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
