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

// Wait waits until a cost is granted, and charges it. If that cannot be before ctx's
// deadline it returns at once with [limit.ErrWouldExceedDeadline] and charges
// nothing; the decision's RetryAfter then says when it can be at the earliest.
//
// The callers in one process that wait for the same key of a rule form one line: first come,
// first served. The first of them asks for those behind it as well, so Redis is asked once for
// each release, however many wait. A large cost in front keeps smaller ones behind it waiting.
// Each process has a line of its own, and callers of [Rule.AllowN] stand in none: between
// different lines and such callers, capacity goes to the one that asks first once it is back.
//
// Other errors are those of [Rule.AllowN], or ctx's own. Metrics count what is granted; and a
// denial each time that the first in line was told to wait, and for each caller that is turned
// away without asking Redis.
func (r *Rule) Wait(ctx context.Context, key string, cost int64) (limit.Decision, error) {
	if err := r.check(ctx, key, cost); err != nil || r.config.dryRun {
		return r.AllowN(ctx, key, cost) // which says what is wrong; and a dry run never waits
	}
	w := r.newWaiter(ctx, key, cost)
	return w.wait(ctx)
}

func (r *Rule) newWaiter(ctx context.Context, key string, cost int64) *waiter {
	w := &waiter{rule: r, key: r.limiter.key(key), cost: cost, told: make(chan struct{}, 1)}
	w.deadline, _ = ctx.Deadline()
	return w
}

// question is what the waiter asks, each time anew: the key's slot may have moved meanwhile.
func (w *waiter) question() question {
	return question{rule: w.rule, key: w.key, cost: w.cost, operation: lua.Take}
}

// wait stands in line.
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

// lookAgain is how old an answer may be for newcomers to go by it: capacity may have come back
// earlier than it said, by a refund, a reset, or because Redis is back.
const lookAgain = time.Second

// lines are the lines of those who wait, by rule and key.
type lines struct {
	mu sync.Mutex // guards all lines and their waiters
	of map[lineID]*line
}

type lineID struct {
	rule string
	key  remote.UserKey
}

// line is those who wait for units of one key, in order of arrival.
type line struct {
	lines   *lines
	id      lineID
	waiters list.List // of *waiter
	units   int64     // that all of them want

	asking   bool      // who is first has asked, and has no answer yet
	released bool      // since it has asked
	asked    time.Time // the last answer
	next     time.Time // when what who is first wants is free, as of that answer; zero: unknown
}

// waiter is a call of Wait. Its rule may be another with the same name, see [Rule.WithLimit].
type waiter struct {
	rule     *Rule
	key      callKey
	cost     int64
	deadline time.Time // zero: none
	told     chan struct{}

	denied   bool          // when it was first and asked, which has been counted
	place    *list.Element // nil: it is done
	decision limit.Decision
	slot     *Slot // of a rule with slots
	err      error
}

// end counts what a waiter ends with that has not been counted as a decision.
func (w *waiter) end() (limit.Decision, error) {
	switch {
	case w.err == nil:
	case errors.Is(w.err, limit.ErrWouldExceedDeadline):
		if !w.denied {
			q := w.question()
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
	default: // it has been told to look, and has not yet
	}
}

// join puts a waiter at the end of its line, unless it cannot be served in time.
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

// first is who is first in a line. The lock is held, and somebody waits.
func (q *line) first() *waiter { return q.waiters.Front().Value.(*waiter) }

type waiterTask int

const (
	waiterWaits waiterTask = iota
	waiterAsks
	waiterDone
)

// look says what a waiter has to do; and for how long it waits, if not until it is told.
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

// wait waits until the waiter is told to look again; for as long as pause, unless that is 0.
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

// ask asks for who is first, and for those behind who want the same.
func (q *line) ask(ctx context.Context, w *waiter) {
	// No more can be granted than the limit, and one more tells when the next is.
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
	go q.askFor(context.WithoutCancel(ctx), w, count) // it is not for one alone, who may leave
}

func (q *line) askFor(ctx context.Context, w *waiter, count int64) {
	if w.rule.slots != nil {
		q.acquireFor(w, count)
		return
	}
	asked := w.question()
	granted, denied, err := asked.allowSeveral(ctx, count)
	for _, d := range q.answered(w, granted, nil, denied, err) {
		if err := w.rule.Refund(ctx, w.key.said, &d, d.Granted); err != nil {
			w.rule.limiter.log.Warn("waited", "units for a call that no longer waits could not be given back", "error", err)
		}
	}
}

func (w *waiter) wantsTheSame(other *waiter) bool {
	return w.rule == other.rule && w.cost == other.cost
}

// answered hands out what was granted, in order, and returns what nobody waits for any more.
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

// expelLate sends those away who cannot be served in time, if who is first must wait so long.
func (q *line) expelLate(wait time.Duration) {
	first, between := q.first(), int64(0)
	for at := q.waiters.Front(); at != nil; {
		w := at.Value.(*waiter)
		at = at.Next()
		if !first.wantsTheSame(q.first()) {
			return // the first is gone, and how long the next must wait is not known
		}
		if before := q.first(); !q.expel(w, wait, between) && w != before {
			between += w.cost
		}
	}
}

// expel sends a waiter away if it cannot be served in time: who is first waits so long, and so
// many units are wanted by those between them.
func (q *line) expel(w *waiter, wait time.Duration, between int64) (late bool) {
	if first := q.first(); first != w {
		wait += w.rule.takesAtLeast(first.cost, between+w.cost)
	}
	if w.deadline.IsZero() || time.Until(w.deadline) > wait || w.rule.slots != nil { // may be released at any time
		return false
	}
	d := w.rule.decision(limit.TierLocal)
	d.RetryAfter, d.ResetAfter = wait, wait
	q.done(w, d, fmt.Errorf("%w: %d units of rule %q are free in %v at the earliest", limit.ErrWouldExceedDeadline, w.cost, w.rule.name, wait))
	return true
}

// takesAtLeast is how long it takes at least, from when the first units are free and taken,
// until so many more have been.
func (r *Rule) takesAtLeast(first, more int64) time.Duration {
	window := float64(r.limit.Window())
	if r.algorithm.Same(limit.GCRA()) {
		return time.Duration(min(float64(more)/float64(r.limit.Quota())*window, float64(limit.MaxWindow)))
	}
	windows := (first + more - 1) / r.WorstCase() // of which none lets more through
	return time.Duration(min(float64(windows)*window, float64(limit.MaxWindow)))
}

// leave takes a waiter out of the line, unless it is done.
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

// done takes a waiter out of the line and tells it what it waited for. The lock is held.
func (q *line) done(w *waiter, d limit.Decision, err error) {
	q.waiters.Remove(w.place)
	q.units -= w.cost
	w.place, w.decision, w.err = nil, d, err
	w.tell()
	if q.waiters.Len() == 0 {
		delete(q.lines.of, q.id)
	}
}

// release has who is first ask at once: units have been given back.
func (ls *lines) release(rule string, key remote.UserKey) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if q := ls.of[lineID{rule, key}]; q != nil {
		q.released, q.next = true, time.Time{}
		q.first().tell()
	}
}
