package tiered

import (
	"container/list"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
)

// lookAgain is the age up to which an answer of Redis is used for callers that join a queue. Capacity may
// have come back earlier than the answer said, because of a refund or a reset, or because Redis is back.
const lookAgain = time.Second

// turns is how many times as long as the others a queue for slots may take the slots that its own process
// releases, if there are other processes. The others learn of a release only by asking, and would otherwise never
// be first.
const turns = 20

// asksPerSecond is about how often the whole fleet asks in a second for slots that other processes may have
// released, at most (law 7). Without a bound, Redis would do little else once callers wait for ten thousand keys.
const asksPerSecond = 10_000

// mostAsking is how many queues of a process may ask at the same time. Callers that wait have time, and decisions have
// not: if callers began to wait for ten thousand keys at once and all queues asked, many answers would be late, of those
// queues and of other calls (laws 6 and 7).
const mostAsking = 256

// lines holds the queues of all callers of Wait and AcquireWait, by rule and key. Rules of the same name with other
// settings have their own queues (see [Rule.WithLimit] and [Limiter.ChangeRule]), so that a caller that waits under
// one limit or algorithm does not hold up callers whose rule has room. The same is true for outage policies (see
// [Rule.WithOutage]): a caller that may go on without Redis does not wait behind one that may not.
type lines struct {
	nonEmpty atomic.Bool // whether there are any queues; read by release, because usually nobody waits
	mu       sync.Mutex  // guards all queues and their waiters
	byKey    map[local.HeldKey][]*line
	forSlots int // number of queues for slots

	closed bool          // no waiter may ask any more
	ended  chan struct{} // closed with it
	// asks are those of waiters, until grants that nobody waits for are given back, and groups over several slots,
	// until what they take back is given back.
	asks   sync.WaitGroup
	asking chan struct{} // has an element for each queue that asks
}

func newLines() lines {
	return lines{byKey: make(map[local.HeldKey][]*line), ended: make(chan struct{}), asking: make(chan struct{}, mostAsking)}
}

// begin adds to asks, unless the limiter is being closed.
func (ls *lines) begin() bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if !ls.closed {
		ls.asks.Add(1)
	}
	return !ls.closed
}

// close ends all waits. No waiter asks Redis from then on.
func (ls *lines) close() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.closed = true
	close(ls.ended)
	for _, queues := range ls.byKey {
		for _, q := range queues {
			for at := q.waiters.Front(); at != nil; at = at.Next() {
				at.Value.(*waiter).wake.Send()
			}
		}
	}
}

// line is the queue of the callers that wait for units of one key under rules with the same settings, in order of
// arrival. Only the first waiter asks Redis.
type line struct {
	lines    *lines
	id       local.HeldKey
	forSlots bool      // the waiters want slots
	waiters  list.List // of *waiter; not empty, except while the line is made or removed
	units    int64     // the sum of the waiters' costs

	asking     bool       // the first waiter asks, or is about to, and has no answer yet
	released   bool       // units were given back since the first waiter asked
	answeredAt time.Time  // when the last answer came
	next       time.Time  // when the first waiter's units are free according to that answer; zero: unknown
	tier       limit.Tier // tier of the decision for callers that are turned away because of that answer

	// For slots: the time at which this queue's turn began, and the time at which the other processes'
	// turn ends.
	turn, others time.Time
}

// join puts a waiter at the end of its queue, unless it cannot be served in time.
func (ls *lines) join(w *waiter) *line {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	q := ls.lineFor(w)
	w.place = q.waiters.PushBack(w)
	between := q.units - q.first().cost
	q.units += w.cost
	switch {
	case q.asking || q.next.IsZero(): // as for a queue that w begins
	case time.Since(q.answeredAt) > lookAgain:
		q.next = time.Time{}
		q.first().wake.Send()
	default:
		now := time.Now()
		q.endIfLate(w, now, q.next.Sub(now), between)
	}
	return q
}

// lineFor returns the queue of a waiter's key and rule. It makes one if there is none. The lock
// must be held.
func (ls *lines) lineFor(w *waiter) *line {
	id := w.rule.heldKey(&w.key)
	for _, q := range ls.byKey[id] {
		if q.first().rule.equal(w.rule) {
			return q
		}
	}
	q := &line{lines: ls, id: id, turn: time.Now()}
	if q.forSlots = w.rule.slotTTL != 0; q.forSlots {
		ls.forSlots++
	}
	ls.byKey[id] = append(ls.byKey[id], q)
	ls.nonEmpty.Store(true)
	return q
}

// remove removes an empty queue. The lock must be held.
func (ls *lines) remove(q *line) {
	all := slices.DeleteFunc(ls.byKey[q.id], func(other *line) bool { return other == q })
	if ls.byKey[q.id] = all; len(all) == 0 {
		delete(ls.byKey, q.id)
	}
	ls.nonEmpty.Store(len(ls.byKey) > 0)
	if q.forSlots {
		ls.forSlots--
	}
}

// askEvery returns the longest time after which the first waiter of a queue for slots asks again, because other
// processes may have released some. The lock must be held.
func (ls *lines) askEvery(fleet int) time.Duration {
	return max(acquireAgain, time.Duration(ls.forSlots)*time.Duration(fleet)*(time.Second/asksPerSecond))
}

// first returns the first waiter. The lock must be held, and the queue must not be empty.
func (q *line) first() *waiter { return q.waiters.Front().Value.(*waiter) }

type waiterTask int

const (
	waiterWaits waiterTask = iota
	waiterAsks
	waiterDone
)

// nextTask returns what a waiter has to do next. If the waiter has to wait, pause is the longest time to
// wait; 0 means until the waiter is woken.
func (q *line) nextTask(w *waiter) (task waiterTask, pause time.Duration) {
	q.lines.mu.Lock()
	defer q.lines.mu.Unlock()
	switch {
	case w.place == nil:
		return waiterDone, 0
	case q.lines.closed:
		q.done(w, limit.Decision{}, limit.ErrClosed)
		return waiterDone, 0
	case q.first() != w || q.asking:
		return waiterWaits, 0
	}
	if pause = max(time.Until(q.next), time.Until(q.others)); pause > 0 && w.rule.config.policy == Allow { // Redis may have been lost
		switch again := lookAgain - time.Since(q.answeredAt); {
		case again > 0:
			pause = min(pause, again)
		case w.rule.limiter.shardOf(&w.key).Breaker.Closed():
			pause = min(pause, lookAgain)
		default:
			pause = 0
		}
	}
	if pause > 0 && w.rule.config.unsettled == GiveBack {
		// Redis does not say when a hold will end that nobody settles, and its units are free from then on.
		pause = min(pause, max(0, lookAgain-time.Since(q.answeredAt)))
	}
	if pause > 0 {
		return waiterWaits, pause
	}
	q.asking = true
	q.lines.asks.Add(1)
	return waiterAsks, 0
}

// rest waits until the waiter is woken, ctx ends, or pause is over. If pause is 0, it sets no time limit.
func (w *waiter) rest(ctx context.Context, pause time.Duration) {
	var over <-chan time.Time
	if pause > 0 {
		over = time.After(pause)
	}
	select {
	case <-w.wake:
	case <-over:
	case <-ctx.Done():
	}
}

// answered gives grants to the waiters, in order, and returns the grants that nobody waits for any more.
// slots has the slot of each grant, if the rule has slots.
func (q *line) answered(w *waiter, granted []limit.Decision, slots []*Slot, denied *limit.Decision, err error) (left []limit.Decision) {
	q.lines.mu.Lock()
	defer q.lines.mu.Unlock()
	q.asking, q.answeredAt, q.next = false, time.Now(), time.Time{}
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
		if q.forSlots {
			if again := q.lines.askEvery(w.rule.limiter.FleetSize()); again > wait {
				wait = max(wait, again-rand.N(again/2)) // not all queues that began together ask together
			}
		}
		q.tier = limit.TierLocal // the local tier repeats Redis's denial
		if denied.Degraded() {
			q.tier = denied.Tier
		}
		q.endLate(wait)
		if denied.Degraded() {
			wait = min(wait, lookAgain) // Redis may be back sooner
		}
		if q.waiters.Len() > 0 && w.wantsTheSame(q.first()) {
			q.next = q.answeredAt.Add(wait)
		}
	}
	if q.waiters.Len() > 0 {
		q.first().wake.Send()
	}
	return left
}

// endLate ends the waits that cannot succeed in time, given how long the first waiter must wait.
func (q *line) endLate(wait time.Duration) {
	first, between := q.first(), int64(0)
	if first.rule.freesUnitsAnyTime() {
		return
	}
	for at := q.waiters.Front(); at != nil; {
		w := at.Value.(*waiter)
		at = at.Next()
		if !first.wantsTheSame(q.first()) {
			return // the first waiter is gone, and nobody knows how long the next one must wait
		}
		if before := q.first(); !q.endIfLate(w, q.answeredAt, wait, between) && w != before {
			between += w.cost
		}
	}
}

// freesUnitsAnyTime reports whether units may be free earlier than a denial says although no process gives any back:
// slots expire, and a hold that nobody settles may give its units back at its end.
func (r *Rule) freesUnitsAnyTime() bool {
	return r.slotTTL != 0 || r.config.unsettled == GiveBack
}

// endIfLate ends the wait of a waiter if it cannot succeed in time. wait is how long the first waiter must
// wait from now on, and between is the number of units that the waiters between the first one and w want.
// endIfLate is called again and again for each waiter, so it begins with the checks that end most calls.
func (q *line) endIfLate(w *waiter, now time.Time, wait time.Duration, between int64) (late bool) {
	if w.deadline.IsZero() || w.rule.freesUnitsAnyTime() {
		return false
	}
	if first := q.first(); first != w {
		wait += w.rule.takesAtLeast(first.cost, between+w.cost)
	}
	if w.deadline.Sub(now) > wait {
		return false
	}
	d := w.rule.decision(q.tier)
	d.RetryAfter, d.ResetAfter = wait, wait
	q.done(w, d, fmt.Errorf("%w: %d units of rule %q are free in %v at the earliest", limit.ErrWouldExceedDeadline, w.cost, w.rule.name, wait))
	return true
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
		q.first().wake.Send()
	}
}

// done removes a waiter from the queue and gives it its result. The lock must be held.
func (q *line) done(w *waiter, d limit.Decision, err error) {
	q.waiters.Remove(w.place)
	q.units -= w.cost
	w.place, w.decision, w.err = nil, d, err
	w.wake.Send()
	if q.waiters.Len() == 0 {
		q.lines.remove(q)
	}
}

// release makes the first waiter of each queue of a key ask at once, because units have been given back.
// If the units are slots and the queue's turn is over, the waiter asks only after other processes have
// had time to ask.
func (ls *lines) release(key local.HeldKey) {
	if !ls.nonEmpty.Load() {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, q := range ls.byKey[key] {
		first := q.first()
		first.rule.forgetDenial(first.key.hash) // the denial under this queue's limit
		q.released, q.next = true, time.Time{}
		q.takeTurns()
		first.wake.Send()
	}
}

// takeTurns begins the turn of other processes if this queue's turn is over. The lock must be held.
func (q *line) takeTurns() {
	fleet, now := q.first().rule.limiter.FleetSize(), time.Now()
	if !q.forSlots || fleet == 1 {
		return
	}
	if again := q.lines.askEvery(fleet); now.Sub(q.turn) > turns*again {
		q.turn, q.others = now, now.Add(again+10*time.Millisecond) // each of the others asks within this time
	}
}
