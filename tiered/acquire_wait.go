package tiered

import (
	"context"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
)

// AcquireWait is [Rule.Acquire] that waits until the units are free. Callers in one process that
// wait for the same key of a rule form one queue, which is served in order. The first of them asks
// again as soon as this process has released units of the key, and also every 50 ms, because
// nothing reports when other processes release theirs: it notices that at most 50 ms and a trip
// late.
//
// Errors are those of Acquire, or ctx's own once it has ended.
func (r *Rule) AcquireWait(ctx context.Context, key string, units int64) (*Slot, error) {
	if err := r.checkSlots(ctx, key, units); err != nil || r.config.dryRun {
		slot, _, err := r.Acquire(ctx, key, units) // returns the error; and a dry run never waits
		return slot, err
	}
	w := r.newWaiter(ctx, key, units)
	_, err := w.wait(remote.WithoutDecideBy(ctx)) // as in Wait
	return w.slot, err
}

// acquireFor asks for the first caller in a queue, and for those behind it that want the same.
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
