package tiered

import (
	"context"
	"time"

	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/remote"
)

// acquire asks Redis to decide a part that may acquire slots; see charge.
func (g *together) acquire(ctx context.Context, s *outage.Shard, part []int, entries []remote.Entry, within time.Duration) ([]remote.Reply, error) {
	questions := make([]*question, len(part))
	for j, i := range part {
		questions[j] = &g.questions[i]
	}
	entered, err := g.limiter.enterSlots(ctx, within, questions...)
	if err != nil {
		return nil, err
	}
	sent := g.limiter.slotNow()
	replies, err := s.DecideAll(context.WithoutCancel(ctx), entries, within) // see Rule.Acquire
	for j, i := range part {
		if entered[j] == nil {
			continue
		}
		var reply remote.Reply
		if err == nil {
			reply = replies[j]
		}
		if slots := questions[j].leaveSlots(entered[j], sent, &reply, err); slots != nil {
			g.grants[i].Slot = slots[0]
		}
	}
	return replies, err
}
