package tiered

import (
	"context"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
)

// AcquireWait is like [Rule.Acquire], but waits until the units are free. Callers in one process that
// wait for the same key and limit of a rule form a queue, which is served in order. The first in the queue asks
// again as soon as this process has released units of the key, and also every 50 ms, because Redis
// does not report releases by other processes. So those are noticed after 50 ms and a trip at most.
// There is no order among processes; but a queue whose own process releases units again and again
// leaves those of 60 ms in each second to others, so that they do not wait forever.
//
// Errors are those of Acquire, or ctx's own if it ends first.
func (r *Rule) AcquireWait(ctx context.Context, key string, units int64) (*Slot, error) {
	if err := r.checkSlots(ctx, key, units); err != nil || r.config.dryRun {
		slot, _, err := r.Acquire(ctx, key, units) // returns the error; a dry run never waits
		return slot, err
	}
	w := r.newWaiter(ctx, key, units)
	_, err := w.wait(remote.WithoutDecideBy(ctx)) // as in Wait
	return w.slot, err
}

// acquireFor acquires slots for the first caller in a queue, and for those behind it that want the same
// number of units.
func (q *line) acquireFor(w *waiter, count int64) {
	asked := w.question()
	slots, d, err := asked.acquire(context.Background(), count)
	granted := make([]limit.Decision, len(slots))
	for i := range slots {
		granted[i] = d
		granted[i].Allowed, granted[i].Granted, granted[i].RetryAfter = true, w.cost, 0
		w.rule.count(w.key.said, &granted[i], nil)
	}
	var denied *limit.Decision
	if err == nil && int64(len(slots)) < count {
		denied = &d
		if len(slots) == 0 {
			w.rule.count(w.key.said, denied, nil)
		}
	}
	left := q.answered(w, granted, slots, denied, err)
	for _, slot := range slots[len(slots)-len(left):] {
		slot.Release()
	}
}
