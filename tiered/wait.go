package tiered

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tierlimit/tierlimit/internal/wake"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// Wait waits until a cost is granted, and charges it. If the cost cannot be granted before ctx's
// deadline, Wait returns at once with [limit.ErrWouldExceedDeadline] and charges nothing; the decision's
// RetryAfter is then the earliest time at which it can be granted. If this process remembers the denial
// of a smaller cost, Wait uses that denial's RetryAfter, and asks Redis for the larger cost only after
// that time. Under [Unsettled] with [GiveBack], held units may come back at any time: Wait then asks
// Redis every second, and waits until ctx's deadline. In all other cases Wait asks Redis again when the wait
// that Redis's last answer stated is over, or when another caller joins the queue more than a second after that
// answer. Only then does it notice units that another process gave back, as by [Rule.Refund] or [Hold.Settle].
//
// Callers in one process that wait for the same key of a rule, and whose rules have the same settings, form one
// queue, which is served in order. The first caller also asks for those behind it, so Redis is asked once for
// each release, however many wait. A large cost in front makes smaller ones behind it wait. Each process
// has its own queue, and callers of [Rule.AllowN] do not queue. Among different queues and such callers,
// capacity goes to the one that asks first when it is free. Under the outage policy [Allow], waiting
// calls go on within a second or two if Redis is lost.
//
// Other errors are those of [Rule.AllowN], or ctx's own. Metrics count each grant. They count a denial
// each time that the first caller in the queue has to wait, and for each caller that is turned away
// without asking Redis.
func (r *Rule) Wait(ctx context.Context, key string, cost int64) (limit.Decision, error) {
	if err := r.check(ctx, key, cost); err != nil || r.config.dryRun {
		return r.AllowN(ctx, key, cost) // AllowN returns the error; a rule on a dry run never waits
	}
	if cost > r.capacity { // with CountDenied such a cost is valid, but never granted
		err := r.tooMuch(cost, r.capacity)
		r.count(key, nil, err)
		return limit.Decision{}, err
	}
	w := r.newWaiter(ctx, key, cost)
	return w.wait(remote.WithoutDecideBy(ctx)) // otherwise its time would also apply to the callers that it asks for
}

func (r *Rule) newWaiter(ctx context.Context, key string, cost int64) *waiter {
	w := &waiter{rule: r, key: r.limiter.key(key), cost: cost, wake: wake.NewSignal()}
	w.deadline, _ = ctx.Deadline()
	return w
}

// question returns a new question for each attempt, since the key's slot may have moved meanwhile.
func (w *waiter) question() question {
	return question{rule: w.rule, key: w.key, cost: w.cost, operation: lua.Take}
}

// wait waits in the queue of the waiter's key.
func (w *waiter) wait(ctx context.Context) (limit.Decision, error) {
	line := w.rule.limiter.lines.join(w)
	for {
		if err := ctx.Err(); err != nil { // otherwise it would go on, since asking for slots does not end with ctx
			line.leave(w, err)
		}
		switch task, pause := line.nextTask(w); task {
		case waiterDone:
			return w.end()
		case waiterAsks:
			line.ask(ctx, w)
		case waiterWaits:
			w.rest(ctx, pause)
		}
	}
}

// waiter is a call of Wait or AcquireWait. Waiters of one queue may have different rules with the same
// settings, see [Rule.WithLimit].
type waiter struct {
	rule     *Rule
	key      callKey
	cost     int64
	deadline time.Time // zero: none
	wake     wake.Signal

	denied   bool          // the waiter was first and was denied, which has been counted
	place    *list.Element // nil: done
	decision limit.Decision
	slot     *Slot // for rules with slots
	err      error
}

// end returns a waiter's result, and counts it unless it was counted as a decision. Grants are counted only here,
// because a grant for a caller that has left is given back.
func (w *waiter) end() (limit.Decision, error) {
	denied := errors.Is(w.err, limit.ErrWouldExceedDeadline)
	switch {
	case w.err == nil, denied && !w.denied:
		q := w.question()
		_ = q.end(&w.decision, nil)
	case !denied:
		w.rule.count(w.key.original, &w.decision, w.err)
	}
	return w.decision, w.err
}

// ask asks Redis for the first waiter, and for the waiters behind it that want the same.
func (q *line) ask(ctx context.Context, w *waiter) {
	// Redis cannot grant more than the limit, and one request beyond it shows when the next grant is
	// possible.
	most := min(w.rule.capacity/w.cost+1, max(1, maxWork/w.cost))
	select {
	case q.lines.asking <- struct{}{}:
	case <-ctx.Done():
		q.askedNothing(w)
		return
	case <-q.lines.ended:
		q.askedNothing(w)
		return
	}
	q.lines.mu.Lock()
	q.released = false
	count := int64(0)
	for at := q.waiters.Front(); at != nil && count < most && w.wantsTheSame(at.Value.(*waiter)); at = at.Next() {
		count++
	}
	q.lines.mu.Unlock()
	if count == 1 {
		q.askFor(ctx, w, 1)
		return
	}
	go q.askFor(context.WithoutCancel(ctx), w, count) // for several callers, each of which may leave
}

// askedNothing ends the turn of a waiter that has not asked.
func (q *line) askedNothing(w *waiter) {
	defer q.lines.asks.Done()
	q.answered(w, nil, nil, nil, nil)
}

// askFor asks for up to count waiters, and gives them the answer.
func (q *line) askFor(ctx context.Context, w *waiter, count int64) {
	defer q.lines.asks.Done()
	asked := w.question()
	var granted []limit.Decision
	var slots []*Slot
	var denied *limit.Decision
	// If a function of the program that the client calls panics or ends the goroutine, there is no other answer, and
	// without one the waiters behind w would wait forever.
	err := remote.ErrNoAnswer
	defer func() {
		<-q.lines.asking
		w.giveBack(context.WithoutCancel(ctx), q.answered(w, granted, slots, denied, err), slots)
	}()
	if w.rule.slotTTL == 0 {
		granted, denied, err = asked.allowSeveral(ctx, count)
		return
	}
	var d limit.Decision
	if slots, d, err = asked.acquire(context.Background(), count); err == nil {
		granted, denied = asked.endSeveral(d, int64(len(slots)), count)
	}
}

// giveBack gives back the last grants of an answer, which nobody waits for any more. If the rule has slots, slots has
// those of the whole answer.
func (w *waiter) giveBack(ctx context.Context, left []limit.Decision, slots []*Slot) {
	var trips sync.WaitGroup // at the same time, so that they share trips; Close waits for them
	for i, d := range left {
		trips.Go(func() {
			if slots != nil {
				slots[len(slots)-len(left)+i].Release()
				return
			}
			k := w.key
			if err := w.rule.giveBack(ctx, &k, d.Granted, 0, d.ChargedAt); err != nil {
				w.rule.limiter.log.Warn("waited", "units granted to a call that no longer waits could not be given back", "error", err)
			}
		})
	}
	trips.Wait()
}

func (w *waiter) wantsTheSame(other *waiter) bool {
	return w.rule == other.rule && w.cost == other.cost
}

// takesAtLeast returns the least time from the moment when the first units are free and taken until that
// many more units have been taken.
func (r *Rule) takesAtLeast(first, more int64) time.Duration {
	windows := float64((first + more - 1) / r.WorstCase()) // no window lets more units through than the worst case
	if r.algorithm.Same(limit.GCRA()) {
		windows = float64(more) / float64(r.limit.Quota())
	}
	return time.Duration(min(windows*float64(r.limit.Window()), float64(limit.MaxWindow)))
}

// AcquireWait is like [Rule.Acquire], but waits until the units are free. Callers in one process that wait for
// the same key of a rule, and whose rules have the same settings, form a queue, which is served in order. The
// first caller asks again as soon as this process has released units of the key. It also asks every 50
// ms, because Redis does not report releases by other processes; these are noticed after at most 50 ms
// and a trip. It asks less often if the fleet waits for more than 500 keys: if n processes wait for m keys
// each, about every n * m * 0.1 ms. There is no order among processes. But so that other processes do not wait
// forever, a queue that has existed for 20 such intervals leaves the units that its own process releases to
// others for one interval in each 20.
//
// Errors are those of Acquire, or ctx's own if ctx ends first. If Redis has been asked by then, AcquireWait
// may return up to the limiter's deadline later, for the reason that [Rule.Acquire] gives.
func (r *Rule) AcquireWait(ctx context.Context, key string, units int64) (*Slot, error) {
	if err := r.checkSlots(ctx, key, units); err != nil || r.config.dryRun {
		slot, _, err := r.Acquire(ctx, key, units) // Acquire returns the error; a rule on a dry run never waits
		return slot, err
	}
	w := r.newWaiter(ctx, key, units)
	_, err := w.wait(ctx) // ctx is not passed on to Redis, see askFor
	return w.slot, err
}

// allowSeveral decides up to count requests of the same cost with one trip, one after the other up to the
// first one that is denied. It may stop earlier, but decides at least one request unless it returns an
// error. It counts a denial only if it is the first decision. Grants are counted when callers get them, see
// [waiter.end].
func (q *question) allowSeveral(ctx context.Context, count int64) (allowed []limit.Decision, denied *limit.Decision, err error) {
	r := q.rule
	if count == 1 || !q.goesToRedis() {
		return q.oneByOne(count, func(d *limit.Decision) error { return q.decide(ctx, d) })
	}
	e := q.entry()
	e.Count = count
	reply, err := q.shard().Decide(ctx, e)
	switch {
	case err == nil:
		var d limit.Decision
		q.fromRedis(&d, &reply)
		allowed, denied = q.endSeveral(d, reply.Fitted, count)
		return allowed, denied, nil
	case !r.limiter.leavesToPolicy(err):
		return nil, nil, err
	}
	return q.oneByOne(count, func(d *limit.Decision) error {
		q.fallback(d, r.limiter.now(), err)
		return nil
	})
}

// endSeveral divides the decision about several requests into one for each request that fitted, and a denial
// if there were more. There is no denial if d is a grant: without Redis, fewer requests are decided than count.
// It counts them as allowSeveral does.
func (q *question) endSeveral(d limit.Decision, fitted, count int64) (allowed []limit.Decision, denied *limit.Decision) {
	for i := range fitted {
		one := d
		one.Allowed, one.Granted, one.RetryAfter = true, q.cost, 0
		one.Remaining += (fitted - 1 - i) * q.cost
		allowed = append(allowed, one)
	}
	if fitted < count && !d.Allowed {
		denied = &d
	}
	if fitted == 0 {
		_ = q.end(&d, nil)
	}
	return allowed, denied
}

// goesToRedis reports whether Redis alone will decide the request, as far as this process can tell.
func (q *question) goesToRedis() bool {
	r, s := q.rule, q.shard()
	if r.lease != nil || r.config.countDenied || !s.Breaker.Closed() || s.Settling(r.inOutage) {
		return false
	}
	return !q.remembered(new(limit.Decision), r.limiter.now())
}

// oneByOne does the same as allowSeveral without a common trip. It stops after the first decision by
// Redis.
func (q *question) oneByOne(count int64, decide func(*limit.Decision) error) (allowed []limit.Decision, denied *limit.Decision, err error) {
	for range count {
		var d limit.Decision
		err := decide(&d)
		switch {
		case err != nil && len(allowed) == 0:
			return nil, nil, err
		case err != nil:
			return allowed, nil, nil // the next caller gets the error
		case !d.Allowed && len(allowed) == 0:
			_ = q.end(&d, nil)
		}
		if !d.Allowed {
			return allowed, &d, nil
		}
		if allowed = append(allowed, d); d.Tier == limit.TierRedis {
			break
		}
	}
	return allowed, nil, nil
}
