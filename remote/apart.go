package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tierlimit/tierlimit/limit"
)

// DecideApart has entries without a Group decided in trips of their own, beside those of other calls. Such a trip
// neither waits for other trips nor is it turned away, however many calls wait. It is for what a process must send in
// time: the renewal of what it holds, and charges for what it has granted without Redis. It is up to the caller to make
// few such trips at the same time. On a Cluster the entries may have different slots of one master.
//
// The trips are made one after another, since each carries no more than the trips of other calls do, and each must be
// answered within the given time. After one has failed, no further one is made. Each entry has its own error in
// Reply.Err, as [Batcher.DecideAll] would return it.
//
// DecideApart keeps to that time also if the client does not (Options.Inline). Hooks are called only if Redis fails:
// that such a trip is answered, perhaps with more time than a decision has, does not show that decisions are.
func (b *Batcher) DecideApart(entries []Entry, within time.Duration) []Reply {
	replies := make([]Reply, 0, len(entries))
	for rest := entries; len(rest) > 0; {
		n := b.fitApart(rest)
		own, err := b.tripApart(rest[:n], within)
		if own == nil {
			own = failedReplies(n, err)
		}
		replies, rest = append(replies, own...), rest[n:]
		if err != nil && !isOfSlots(err) {
			return append(replies, failedReplies(len(rest), errNotSent)...)
		}
	}
	return replies
}

func failedReplies(n int, err error) []Reply { return slices.Repeat([]Reply{{Err: err}}, n) }

// fitApart returns how many of the first entries fit on a trip, which is at least one.
func (b *Batcher) fitApart(entries []Entry) int {
	work := int64(0)
	for i := range entries {
		if work += entries[i].work(); i > 0 && (i == b.opt.MaxBatch || work > b.opt.MaxWork) {
			return i
		}
	}
	return len(entries)
}

// tripApart makes a trip. The error is that of the whole trip, or of a part of it.
func (b *Batcher) tripApart(entries []Entry, within time.Duration) (replies []Reply, err error) {
	if !b.startApart() {
		return nil, limit.ErrClosed
	}
	defer b.running.Done()
	started := localTime()
	answer := b.askApart(entries, started, within)
	if err := answer.err; err != nil && !isOfSlots(err) {
		b.apartFailed(len(entries), started, answer.at, within, err)
	}
	for i := range answer.replies {
		r := &answer.replies[i]
		switch r.Status {
		case Unreadable:
			r.Err = fmt.Errorf("%w: %s", ErrUnreadable, entries[i].described())
		case Expired:
			r.Err = errLate
		}
	}
	return answer.replies, answer.err
}

// apartAnswer is the answer to a trip apart, and the local time at which it came.
type apartAnswer struct {
	replies []Reply
	at      int64
	err     error
}

// askApart sends the entries of a trip, and returns in time. A client that may not keep deadlines is left behind with a
// copy of the entries.
func (b *Batcher) askApart(entries []Entry, started int64, within time.Duration) apartAnswer {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	send := func(entries []Entry) (a apartAnswer) {
		to := b.script.nodeOfAll(ctx, entries)
		for i := range entries {
			entries[i].NotAfter = b.notAfter(to, &entries[i], started+within.Microseconds())
		}
		a.replies, _, a.at, a.err = b.send(ctx, to, entries)
		return a
	}
	if b.opt.Inline {
		return send(entries)
	}
	answer, own := &apartAnswer{err: errAbandoned}, slices.Clone(entries) // unless its goroutine ends in the client
	if !b.apart.run(ctx, func() { *answer = send(own) }) {
		return apartAnswer{at: localTime(), err: ErrNoAnswer}
	}
	return *answer
}

// apartFailed reports an error of a trip apart, if Redis is to blame for it. The times are local. A time-out does not count
// if Redis has answered another trip meanwhile: it is slow then, and not lost.
func (b *Batcher) apartFailed(entries int, started, ended int64, within time.Duration, err error) {
	took := ended - started
	failure := b.failureOfRedis(err, took, within)
	if failure == nil || errors.Is(err, ErrNoAnswer) && b.lastAnswer.Load() > started {
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
