package tiered

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// Wait waits until a cost is granted, and charges it. If that is not possible before ctx's
// deadline, it returns at once with [limit.ErrWouldExceedDeadline] and charges nothing; the
// decision's RetryAfter is then the earliest time at which it is possible.
//
// Callers in one process that wait for the same key of a rule form one queue, which is served in
// order. The first of them asks for those behind it as well, so Redis is asked once for each
// release, however many wait. A large cost in front makes smaller ones behind it wait. Each process
// has its own queue, and callers of [Rule.AllowN] do not queue: among different queues and such
// callers, capacity goes to the one that asks first when it is free.
//
// Other errors are those of [Rule.AllowN], or ctx's own. Metrics count grants, and a denial each
// time that the first in the queue has to wait, and for each caller that is turned away without
// asking Redis.
func (r *Rule) Wait(ctx context.Context, key string, cost int64) (limit.Decision, error) {
	if err := r.check(ctx, key, cost); err != nil || r.config.dryRun {
		return r.AllowN(ctx, key, cost) // returns the error; and a dry run never waits
	}
	w := r.newWaiter(ctx, key, cost)
	return w.wait(ctx)
}

func (r *Rule) newWaiter(ctx context.Context, key string, cost int64) *waiter {
	w := &waiter{rule: r, key: r.limiter.key(key), cost: cost, told: make(chan struct{}, 1)}
	w.deadline, _ = ctx.Deadline()
	return w
}

// wait waits in the queue.
func (w *waiter) wait(ctx context.Context) (limit.Decision, error) {
	line := w.rule.limiter.lines.join(w)
	for {
		switch task, pause := line.look(w); task {
		case waiterDone:
			return w.end()
		case waiterAsks:
			line.ask(ctx, w)
		case waiterWaits:
			line.wait(ctx, w, pause)
		}
	}
}

// lookAgain is how old an answer may be to be used for new callers: capacity may have come back
// earlier, by a refund, a reset, or because Redis is back.
const lookAgain = time.Second

// lines has the queues of waiting callers, by rule and key.
type lines struct {
	mu sync.Mutex // guards all lines and their waiters
	of map[lineID]*line
}

type lineID struct {
	rule string
	key  remote.UserKey
}

// line is the queue of callers that wait for units of one key, in order of arrival.
type line struct {
	lines   *lines
	id      lineID
	waiters list.List // of *waiter
	units   int64     // wanted by all of them

	asking   bool      // the first one has asked, and has no answer yet
	released bool      // units were released since it asked
	asked    time.Time // time of the last answer
	next     time.Time // when the first one's units are free, by that answer; zero: unknown
}

// waiter is a call of Wait. Its rule may be another with the same name, see [Rule.WithLimit].
type waiter struct {
	rule     *Rule
	key      callKey
	cost     int64
	deadline time.Time // zero: none
	told     chan struct{}

	denied   bool          // it was first and denied, which has been counted
	place    *list.Element // nil: done
	decision limit.Decision
	slot     *Slot // of a rule with slots
	err      error
}

// end counts a waiter's result, unless it has been counted as a decision.
func (w *waiter) end() (limit.Decision, error) {
	switch {
	case w.err == nil:
	case errors.Is(w.err, limit.ErrWouldExceedDeadline):
		if !w.denied {
			q := question{rule: w.rule, key: w.key, cost: w.cost, operation: lua.Take}
			_ = q.end(&w.decision, nil)
		}
	default:
		w.rule.count(w.key.said, &w.decision, w.err)
	}
	return w.decision, w.err
}

func (w *waiter) tell() {
	select {
	case w.told <- struct{}{}:
	default: // it has been woken, but has not looked yet
	}
}

// join puts a waiter at the end of its queue, unless it cannot be served in time.
func (ls *lines) join(w *waiter) *line {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	id := lineID{w.rule.name, w.key.inRedis()}
	q := ls.of[id]
	if q == nil {
		q = &line{lines: ls, id: id}
		if ls.of == nil {
			ls.of = make(map[lineID]*line)
		}
		ls.of[id] = q
	}
	w.place = q.waiters.PushBack(w)
	behind := q.units - q.first().cost
	q.units += w.cost
	switch {
	case q.asking || q.next.IsZero() || q.first() == w:
	case time.Since(q.asked) > lookAgain:
		q.next = time.Time{}
		q.first().tell()
	default:
		q.expel(w, time.Until(q.next), behind)
	}
	return q
}

// first returns the first waiter of a queue, which must not be empty. The lock is held.
func (q *line) first() *waiter { return q.waiters.Front().Value.(*waiter) }

type waiterTask int

const (
	waiterWaits waiterTask = iota
	waiterAsks
	waiterDone
)

// look returns what a waiter must do, and for how long to wait if not until it is woken.
func (q *line) look(w *waiter) (task waiterTask, pause time.Duration) {
	q.lines.mu.Lock()
	defer q.lines.mu.Unlock()
	switch {
	case w.place == nil:
		return waiterDone, 0
	case q.first() != w || q.asking:
		return waiterWaits, 0
	}
	if pause = time.Until(q.next); pause > 0 {
		return waiterWaits, pause
	}
	q.asking, q.released = true, false
	return waiterAsks, 0
}

// wait waits until the waiter is woken, for at most pause unless that is 0.
func (q *line) wait(ctx context.Context, w *waiter, pause time.Duration) {
	var over <-chan time.Time
	if pause > 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-w.told:
	case <-over:
	case <-ctx.Done():
		q.leave(w, ctx.Err())
	case <-w.rule.limiter.ctx.Done():
		q.leave(w, limit.ErrClosed)
	}
}

// ask asks for the first waiter, and for those behind it that want the same.
func (q *line) ask(ctx context.Context, w *waiter) {
	// No more than the limit can be granted, and one more request tells when the next is possible.
	most := min(w.rule.capacity/w.cost+1, max(1, maxWork/w.cost))
	q.lines.mu.Lock()
	count := int64(0)
	for at := q.waiters.Front(); at != nil && count < most && w.wantsTheSame(at.Value.(*waiter)); at = at.Next() {
		count++
	}
	q.lines.mu.Unlock()
	if count == 1 {
		q.askFor(ctx, w, 1)
		return
	}
	go q.askFor(context.WithoutCancel(ctx), w, count) // it is for several callers, of which each may leave
}

func (q *line) askFor(ctx context.Context, w *waiter, count int64) {
	if w.rule.slots != nil {
		q.acquireFor(w, count)
		return
	}
	granted, denied, err := w.rule.allowSeveral(ctx, &w.key, w.cost, count)
	for _, d := range q.answered(w, granted, nil, denied, err) {
		if err := w.rule.Refund(ctx, w.key.said, &d, d.Granted); err != nil {
			w.rule.limiter.log.Warn("waited", "units for a call that no longer waits could not be given back", "error", err)
		}
	}
}

func (w *waiter) wantsTheSame(other *waiter) bool {
	return w.rule == other.rule && w.cost == other.cost
}

// answered distributes the grants, in order, and returns those for which nobody waits any more.
// slots are those of the decisions, if the rule has slots.
func (q *line) answered(w *waiter, granted []limit.Decision, slots []*Slot, denied *limit.Decision, err error) (left []limit.Decision) {
	q.lines.mu.Lock()
	defer q.lines.mu.Unlock()
	q.asking, q.asked, q.next = false, time.Now(), time.Time{}
	if err != nil && w.place != nil {
		q.done(w, limit.Decision{}, err)
	}
	for i, d := range granted {
		if q.waiters.Len() == 0 || !w.wantsTheSame(q.first()) {
			left = granted[i:]
			break
		}
		if slots != nil {
			q.first().slot = slots[i]
		}
		q.done(q.first(), d, nil)
	}
	if denied != nil && len(granted) == 0 {
		w.denied = true
	}
	if denied != nil && !q.released && q.waiters.Len() > 0 && w.wantsTheSame(q.first()) {
		wait := max(denied.RetryAfter, time.Millisecond)
		q.expelLate(wait)
		if denied.Degraded() {
			wait = min(wait, lookAgain) // Redis may be back sooner
		}
		if q.waiters.Len() > 0 && w.wantsTheSame(q.first()) {
			q.next = q.asked.Add(wait)
		}
	}
	if q.waiters.Len() > 0 {
		q.first().tell()
	}
	return left
}

// expelLate turns away waiters that cannot be served in time, if the first must wait for the given
// time.
func (q *line) expelLate(wait time.Duration) {
	first, between := q.first(), int64(0)
	for at := q.waiters.Front(); at != nil; {
		w := at.Value.(*waiter)
		at = at.Next()
		if !first.wantsTheSame(q.first()) {
			return // the first is gone, and the wait of the next is unknown
		}
		if before := q.first(); !q.expel(w, wait, between) && w != before {
			between += w.cost
		}
	}
}

// expel turns a waiter away if it cannot be served in time: the first waits for wait, and those
// between them want the given units.
func (q *line) expel(w *waiter, wait time.Duration, between int64) (late bool) {
	if first := q.first(); first != w {
		wait += w.rule.takesAtLeast(first.cost, between+w.cost)
	}
	if w.deadline.IsZero() || time.Until(w.deadline) > wait || w.rule.slots != nil { // slots may be released at any time
		return false
	}
	d := w.rule.decision(limit.TierLocal)
	d.RetryAfter, d.ResetAfter = wait, wait
	q.done(w, d, fmt.Errorf("%w: %d units of rule %q are free in %v at the earliest", limit.ErrWouldExceedDeadline, w.cost, w.rule.name, wait))
	return true
}

// takesAtLeast returns the least time from when the first units are taken until more further units
// can be.
func (r *Rule) takesAtLeast(first, more int64) time.Duration {
	window := float64(r.limit.Window())
	if r.algorithm.Same(limit.GCRA()) {
		return time.Duration(min(float64(more)/float64(r.limit.Quota())*window, float64(limit.MaxWindow)))
	}
	windows := (first + more - 1) / r.WorstCase() // no window lets more through
	return time.Duration(min(float64(windows)*window, float64(limit.MaxWindow)))
}

// leave removes a waiter from the queue, unless it is done.
func (q *line) leave(w *waiter, why error) {
	q.lines.mu.Lock()
	defer q.lines.mu.Unlock()
	if w.place == nil {
		return
	}
	d := w.rule.decision(limit.TierLocal)
	d.RetryAfter = max(0, time.Until(q.next))
	wasFirst := q.first() == w
	q.done(w, d, why)
	if wasFirst && q.waiters.Len() > 0 {
		if !w.wantsTheSame(q.first()) {
			q.next = time.Time{}
		}
		q.first().tell()
	}
}

// done removes a waiter from the queue and gives it its result. The lock is held.
func (q *line) done(w *waiter, d limit.Decision, err error) {
	q.waiters.Remove(w.place)
	q.units -= w.cost
	w.place, w.decision, w.err = nil, d, err
	w.tell()
	if q.waiters.Len() == 0 {
		delete(q.lines.of, q.id)
	}
}

// release makes the first waiter ask at once, because units have been given back.
func (ls *lines) release(rule string, key remote.UserKey) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if q := ls.of[lineID{rule, key}]; q != nil {
		q.released, q.next = true, time.Time{}
		q.first().tell()
	}
}
