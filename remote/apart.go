package remote

import (
	"context"
	"fmt"
	"time"

	"github.com/tierlimit/tierlimit/limit"
)

// DecideApart has entries without a Group decided in a trip of their own, beside those of other calls, and within the
// given time. It neither waits for other trips nor is it turned away, however many calls wait. It is for what a process
// must send in time to keep what it holds, and it is up to the caller to make few such trips at the same time. On a
// Cluster the entries may have different slots of one master.
//
// Entries fail separately, see Reply.Err. The error that DecideApart returns is for the whole trip, as that of
// [Batcher.DecideAll]. DecideApart returns when the client does, which should keep to the time given. Hooks are called
// only if Redis fails: that such a trip is answered, with more time than a decision has, does not show that decisions are.
func (b *Batcher) DecideApart(entries []Entry, within time.Duration) ([]Reply, error) {
	if !b.startApart() {
		return nil, limit.ErrClosed
	}
	defer b.running.Done()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	started, to := localTime(), b.script.nodeOfAll(ctx, entries)
	for i := range entries {
		entries[i].NotAfter = b.notAfter(to, &entries[i], started+within.Microseconds())
	}
	replies, _, ended, err := b.send(ctx, to, entries)
	if err != nil && !isOfSlots(err) {
		b.apartFailed(len(entries), ended-started, within, err)
	}
	if replies == nil {
		return nil, err
	}
	for i := range replies {
		r := &replies[i]
		switch r.Status {
		case Unreadable:
			r.Err = fmt.Errorf("%w: %s", ErrUnreadable, entries[i].described())
		case Expired:
			r.Err = errLate
		}
	}
	return replies, nil
}

// apartFailed reports an error of a trip apart that took the given number of µs, if Redis is to blame for it.
func (b *Batcher) apartFailed(entries int, took int64, within time.Duration, err error) {
	failure := b.failureOfRedis(err, took, within)
	if failure == nil {
		return
	}
	if done, notBegun := b.hooks.Begin(); notBegun == nil {
		done(failure)
		b.hooks.Trip(entries, microseconds(took), err)
	}
}

// startApart records that a trip starts, unless the batcher is closed.
func (b *Batcher) startApart() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.running.Add(1)
	}
	return !b.closed
}
