package tiered

import (
	"cmp"
	"context"
	"crypto/rand"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tierlimit/tierlimit/breaker"
	"github.com/tierlimit/tierlimit/internal/durations"
	"github.com/tierlimit/tierlimit/internal/lease"
	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/internal/wake"
	"github.com/tierlimit/tierlimit/local"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

const (
	// renewals is the number of times per TTL that a process renews its slots in Redis.
	renewals = 3
	// renewalsAfterFailure is the number of attempts per TTL after a renewal has failed.
	renewalsAfterFailure = 12
	// A round of the keeper that takes restAfter or longer is followed by a pause of restPart times as long, but
	// of at most 1/restPart of the time between renewals, so that these are not late.
	restAfter = 200 * time.Microsecond
	restPart  = 8
	// A statement has up to answeredWithin deadlines to be answered, because nobody waits for it. While the process is
	// busy, it may read answers late.
	answeredWithin = 4
)

// slotKeeper keeps track of the slots of all rules of a limiter, and renews them in Redis.
type slotKeeper struct {
	table  *local.Slots[*Rule]
	holder remote.Holder
	wake   wake.Signal
	ttls   *durations.Set // of all rules with slots
	closed atomic.Bool    // closeSlots has taken over from keepSlots; set under mu

	mu        sync.Mutex // held while the keeper is started, and in each round
	started   bool
	lastRound int64 // the virtual time of the last round, see roundOfSlots
}

// initSlots initializes the slot keeper. It must be called before any rule is made.
func (l *Limiter) initSlots() {
	l.slots.wake, l.slots.ttls = wake.NewSignal(), new(durations.Set)
	l.slots.table = local.NewSlots[*Rule](l.slots.wake.Send)
	_, _ = rand.Read(l.slots.holder[:]) // never fails
}

// startSlots starts the keeper if necessary, and makes it renew slots with the given TTL in time.
func (l *Limiter) startSlots(ttl time.Duration) {
	k := &l.slots
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ttls.Add(ttl)
	if !k.started && l.config.virtualClock == nil && !k.closed.Load() {
		k.started = true
		l.background.Go(l.keepSlots)
	}
	k.wake.Send()
}

// renewEvery returns the time between two renewals in ns: a third of the shortest TTL.
func (k *slotKeeper) renewEvery() int64 {
	return int64(cmp.Or(k.ttls.Shortest(), defaultSlotTTL) / renewals)
}

// keepSlots runs in the background. It renews slots in Redis, sends the statements that are due, and ends
// slots that are lost. It does not wait for Redis, so slots end in time even while a statement is in
// flight.
func (l *Limiter) keepSlots() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	none := func(local.HeldKey) bool { return false }
	confirmed, sending := make(chan bool, 1), false // the result of the statements in flight, and whether there are any
	renewing, renewAt := false, l.now()             // whether those statements renew, and when the next renewal is due
	retryAt := int64(0)                             // when the next renewal is due if the one in flight fails
	renewal := local.RenewAll                       // what the next renewal includes
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-l.slots.wake:
		case <-timer.C:
		case ok := <-confirmed:
			if sending = false; renewing && !ok {
				renewAt, renewal = retryAt, local.RenewRest
			}
		}
		if l.slots.closed.Load() {
			return
		}
		began := time.Now()
		now, renewEvery := l.now(), l.slots.renewEvery()
		l.slots.table.Keep(now, l.isReachable)
		renewAt = min(renewAt, now+renewEvery) // a rule with a shorter TTL may have been made meanwhile
		next, reachable := now+renewEvery, none
		if !sending {
			renew := local.RenewNone
			if renewing = now >= renewAt; renewing {
				renew, renewal = renewal, local.RenewAll
				renewAt, retryAt = now+renewEvery, now+min(renewEvery, int64(max(attemptEvery(renewEvery), l.config.deadline)))
			}
			if statements := l.slots.table.Statements(now, renew, l.isReachable); len(statements) > 0 {
				sending = true
				within := l.statementTime(renewEvery)
				l.background.Go(func() { confirmed <- l.sendStatements(context.Background(), statements, within) })
			} else {
				next, reachable = renewAt, l.isReachable
			}
		}
		l.slots.rest(l.ctx, time.Since(began))
		now = l.now()
		next = min(next, max(l.slots.table.Next(reachable), now+int64(time.Millisecond)))
		timer.Reset(time.Duration(max(0, next-now)))
	}
}

// rest pauses the keeper in proportion to the time that a round took, if that was long. In an outage, each slot
// that is acquired or released wakes the keeper, and each round goes through all keys, with the table locked.
// Without the pause, a process that holds tens of thousands of keys would do little else.
func (k *slotKeeper) rest(ctx context.Context, took time.Duration) {
	if took < restAfter {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(min(restPart*took, time.Duration(k.renewEvery())/restPart)):
	}
}

// isReachable reports whether statements about a key can be sent. They cannot be sent while the key's Redis
// is lost.
func (l *Limiter) isReachable(key local.HeldKey) bool {
	return l.shards.Of(remote.UserKey(key.Key)).Breaker.Closed()
}

// doubtSlots puts all keys of a shard in doubt, so that statements about them are sent.
func (l *Limiter) doubtSlots(s *outage.Shard) {
	l.slots.table.Doubt(l.now(), func(key local.HeldKey) bool { return l.shards.Of(remote.UserKey(key.Key)) == s })
}

// sendDueStatements sends the statements that are due, and waits for their answers. It renews no slots. Once ctx
// has ended, it does not send the remaining statements, and they are not due again.
func (l *Limiter) sendDueStatements(ctx context.Context, now int64) {
	l.sendStatements(ctx, l.slots.table.Statements(now, local.RenewNone, l.isReachable), l.config.deadline)
}

// attemptEvery returns the time between two attempts to renew slots, if the first fails.
func attemptEvery(renewEvery int64) time.Duration {
	return time.Duration(renewEvery * renewals / renewalsAfterFailure)
}

// statementTime returns the time in which a statement must be answered: by the time of the next attempt, but at least one
// deadline and at most answeredWithin deadlines.
func (l *Limiter) statementTime(renewEvery int64) time.Duration {
	return max(l.config.deadline, min(answeredWithin*l.config.deadline, attemptEvery(renewEvery)))
}

// sendStatements sends statements, and reports whether Redis has confirmed all of them within the time that each has;
// see sendDueStatements.
func (l *Limiter) sendStatements(ctx context.Context, statements []local.Statement[*Rule], within time.Duration) (confirmed bool) {
	of := make(map[*outage.Shard][]local.Statement[*Rule])
	for _, s := range statements {
		shard := l.shards.Of(remote.UserKey(s.Held.Key))
		of[shard] = append(of[shard], s)
	}
	var all errgroup.Group
	for shard, its := range of {
		all.Go(func() (failed error) {
			// One trip at a time, so that decisions wait for one trip with statements, and not for several.
			for batch := range slices.Chunk(its, maxBatch) {
				if ctx.Err() == nil {
					failed = cmp.Or(l.sendStatementBatch(shard, batch, within), failed)
				}
			}
			return failed
		})
	}
	return all.Wait() == nil
}

// sendStatementBatch sends statements about keys of a shard in one trip. That trip does not wait for those of
// decisions: under overload, slots that are in use would be lost. It returns an error unless Redis has confirmed all
// statements. A key whose value is unreadable does not affect the others (law 7).
func (l *Limiter) sendStatementBatch(shard *outage.Shard, statements []local.Statement[*Rule], within time.Duration) error {
	entries := make([]remote.Entry, len(statements))
	for i := range statements {
		s := &statements[i]
		entries[i] = remote.Entry{Key: s.Held.Key, Rule: s.Owner.encoded, Operation: lua.Slots, Cost: lua.SlotsAsKnown}
		if s.Absolute {
			entries[i].Cost = s.Units
		}
	}
	sent := l.slotNow()
	replies := slices.Repeat([]remote.Reply{{Err: breaker.ErrOpen}}, len(entries))
	if shard.Breaker.Closed() { // it may have opened since the statements were made
		replies = shard.DecideApart(entries, within)
	}
	soon := l.config.deadline // as in Slot.Release
	for i := range statements {
		soon = min(soon, statements[i].TTL/renewals)
	}
	by := time.Now().Add(soon)
	now := l.now()
	var failed error
	var given []*local.Held[*Rule] // with an entry in back for each
	var back []remote.Entry
	for i := range statements {
		s := &statements[i]
		if err := replies[i].Err; err != nil {
			failed = err
			s.Failed(l.unsettledUntil(now, within))
			continue
		}
		if units := s.Answered(now, l.slotsTill(sent, s.TTL), l.unsettledUntil(now, soon), replies[i].Granted, replies[i].Remaining); units > 0 {
			e := entries[i]
			e.Operation, e.Cost = lua.Refund, units
			given, back = append(given, s.Held), append(back, e)
		}
		if s.Absolute {
			l.lines.release(s.Held.HeldKey) // so that the first waiter asks again
		}
	}
	l.giveSurplusBack(shard, given, back, by)
	return failed
}

// giveSurplusBack gives units back that were released while a statement was in flight. It sends all entries in one
// trip, which takes effect by the given time.
func (l *Limiter) giveSurplusBack(shard *outage.Shard, given []*local.Held[*Rule], entries []remote.Entry, by time.Time) {
	if len(given) == 0 {
		return
	}
	replies := shard.DecideApart(entries, time.Until(by))
	for i, h := range given {
		l.released(h, entries[i].Cost, &replies[i], replies[i].Err)
		l.lines.release(h.HeldKey)
	}
}

// slotNow returns the limiter's time in whole microseconds, the resolution of Redis.
func (l *Limiter) slotNow() int64 {
	now := l.now()
	return now - now%int64(time.Microsecond)
}

// slotsTill returns the time until which this process may rely on slots that Redis keeps for ttl. sent is
// the time at which the request was sent. The result is before the slots expire in Redis, even if the two
// clocks run at slightly different speeds.
func (l *Limiter) slotsTill(sent int64, ttl time.Duration) int64 {
	if l.config.virtualClock != nil {
		return math.MaxInt64 // in virtual time no keeper could renew them; see roundOfSlots
	}
	return sent + int64(ttl-ttl/lease.Drift)
}

// unsettledUntil returns the time from which an entry whose answer was lost can no longer take effect, if it
// had to be answered within the given time: no entry is sent after its call has returned, and none is charged
// after its deadline (law 4).
func (l *Limiter) unsettledUntil(now int64, within time.Duration) int64 {
	if l.config.virtualClock != nil {
		return now
	}
	return now + int64(within+time.Microsecond) // Redis's clock counts µs
}

// roundOfSlots replaces the keeper in virtual time, which may advance in steps of hours. It is called
// before each request, and reports to Redis what is held.
func (l *Limiter) roundOfSlots() {
	if l.config.virtualClock == nil {
		return
	}
	k, now := &l.slots, l.now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if now != k.lastRound {
		k.lastRound = now
		k.table.Doubt(now, func(local.HeldKey) bool { return true })
	}
	l.sendDueStatements(context.Background(), now)
}

// closeSlots releases all slots (law 12). It logs the number of keys whose slots it could not release.
func (l *Limiter) closeSlots() {
	k := &l.slots
	k.mu.Lock()
	k.closed.Store(true)
	k.mu.Unlock()
	k.table.EndAll(l.now())
	l.reportSlotsEnded()
	if keys := k.table.Keys(); keys > 0 {
		l.log.Warn("slots", "slots could not be released before the limiter was closed; they become free when their rule's SlotTTL has passed", "keys", keys)
	}
}

// reportSlotsEnded reports to Redis that all slots have ended. It sends a statement whose answer was lost again
// when the earlier one can no longer take effect, which is after the deadline. It gives up if Redis is
// lost or has confirmed nothing for three deadlines. It also gives up early enough to leave Close time
// for its other steps.
func (l *Limiter) reportSlotsEnded() {
	k := &l.slots
	const retried = 3 // deadlines: the lost answer, the wait that follows, and the second attempt
	until := time.Now().Add(retried * l.config.deadline)
	within, cancel := context.WithTimeout(context.Background(), l.config.deadline+closeWithin/2)
	defer cancel()
	for left := k.table.Keys(); left > 0 && time.Now().Before(until) && within.Err() == nil; k.table.EndAll(l.now()) {
		l.sendDueStatements(within, l.now())
		if keys := k.table.Keys(); keys < left {
			left, until = keys, time.Now().Add(retried*l.config.deadline)
		}
		if l.shard != nil && !l.shard.Breaker.Closed() {
			return
		}
		if left > 0 {
			time.Sleep(time.Millisecond) // entries are in flight
		}
	}
}
