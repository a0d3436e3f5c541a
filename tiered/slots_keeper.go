package tiered

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/internal/lease"
	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/local"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

const (
	// renewals is how often in a TTL Redis is told that the process is alive.
	renewals = 3
	// renewalsAfterFailure is how often, once Redis was not reached.
	renewalsAfterFailure = 12
	// statementsAtOnce is how many trips tell Redis at the same time what is held.
	statementsAtOnce = 8
)

// slotKeeper has the slots of all rules of a limiter.
type slotKeeper struct {
	table  *local.Slots[*Rule]
	holder remote.Holder
	wake   chan struct{}
	third  atomic.Int64 // of the shortest TTL, in ns; 0: there is no rule with slots

	mu     sync.Mutex // guards the fields below
	closed bool
	told   int64 // when Redis was told last, in virtual time
}

// initSlots must be called before any rule is made.
func (l *Limiter) initSlots() {
	l.slots.table, l.slots.wake = local.NewSlots[*Rule](l.wakeSlots), make(chan struct{}, 1)
	_, _ = rand.Read(l.slots.holder[:]) // never fails
}

// startSlots has the slots of rules with that TTL kept.
func (l *Limiter) startSlots(ttl time.Duration) {
	third := int64(ttl / renewals)
	for {
		known := l.slots.third.Load()
		if known != 0 && known <= third {
			return
		}
		if !l.slots.third.CompareAndSwap(known, third) {
			continue
		}
		if known == 0 && l.config.virtualClock == nil {
			l.slots.mu.Lock()
			defer l.slots.mu.Unlock()
			if !l.slots.closed {
				l.background.Go(l.keepSlots)
			}
		}
		l.wakeSlots()
		return
	}
}

// wakeSlots has the keeper look at what there is to do. It never waits.
func (l *Limiter) wakeSlots() {
	select {
	case l.slots.wake <- struct{}{}:
	default:
	}
}

// keepSlots runs in the background: it tells Redis what is held, and those who have lost slots.
func (l *Limiter) keepSlots() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	renewAt := l.now()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-l.slots.wake:
		case <-timer.C:
		}
		now, third := l.now(), l.slots.third.Load()
		l.slots.table.Keep(now, l.keepsSlots)
		renew := now >= renewAt
		told := l.tellSlots(now, renew)
		if renew {
			renewAt = now + third
			if !told {
				renewAt = now + max(third*renewals/renewalsAfterFailure, int64(l.config.deadline))
			}
		}
		now = l.now()
		next := min(renewAt, now+third, max(l.slots.table.Next(l.canTell), now+int64(time.Millisecond)))
		timer.Reset(time.Duration(max(0, next-now)))
	}
}

// keepsSlots reports whether slots are kept although Redis cannot be told: as the outage policy
// says, while it counts as lost.
func (l *Limiter) keepsSlots(key local.HeldKey, r *Rule) bool {
	return r.config.policy != Deny && !l.canTell(key)
}

// canTell reports whether Redis can be told what is held of a key.
func (l *Limiter) canTell(key local.HeldKey) bool {
	return l.shards.Of(remote.UserKey(key.Key)).Breaker.Closed()
}

// doubtSlots has Redis told what is held of a shard's keys.
func (l *Limiter) doubtSlots(s *outage.Shard) {
	l.slots.table.Doubt(l.now(), func(key local.HeldKey) bool { return l.shards.Of(remote.UserKey(key.Key)) == s })
}

// tellSlots tells Redis what it is to be told now, and reports whether it has been.
func (l *Limiter) tellSlots(now int64, renew bool) (told bool) {
	statements := l.slots.table.Statements(now, renew, l.canTell)
	var failed atomic.Bool
	var trips sync.WaitGroup
	places := make(chan struct{}, statementsAtOnce)
	for _, batch := range l.slotBatches(statements) {
		places <- struct{}{}
		trips.Go(func() {
			defer func() { <-places }()
			if !l.tellBatch(batch) {
				failed.Store(true)
			}
		})
	}
	trips.Wait()
	return !failed.Load()
}

// slotBatches divides statements into those that a trip carries: on a Cluster those of a slot.
func (l *Limiter) slotBatches(statements []local.Statement[*Rule]) (batches [][]local.Statement[*Rule]) {
	groups := map[uint16][]local.Statement[*Rule]{}
	for _, s := range statements {
		slot := uint16(0)
		if l.shard == nil {
			slot = l.keys.Slot(remote.UserKey(s.Held.Key))
		}
		groups[slot] = append(groups[slot], s)
	}
	for _, group := range groups {
		for len(group) > 0 {
			n := min(len(group), maxBatch)
			batches, group = append(batches, group[:n]), group[n:]
		}
	}
	return batches
}

// tellBatch makes a trip. A key that cannot be read must not keep Redis from being told of the
// others (law 7): then each is told by itself.
func (l *Limiter) tellBatch(batch []local.Statement[*Rule]) (told bool) {
	entries := make([]remote.Entry, len(batch))
	for i := range batch {
		s := &batch[i]
		entries[i] = remote.Entry{Key: s.Held.Key, Rule: s.Owner.encoded, Operation: lua.Slots, Cost: lua.SlotsAsKnown}
		if s.Absolute {
			entries[i].Cost = s.Units
		}
	}
	sent := l.slotNow()
	replies, err := l.shards.Of(remote.UserKey(batch[0].Held.Key)).DecideAll(context.Background(), entries, l.config.deadline)
	if errors.Is(err, remote.ErrUnreadable) && len(batch) > 1 {
		told = true
		for i := range batch {
			told = l.tellBatch(batch[i:i+1]) && told
		}
		return told
	}
	now := l.now()
	for i := range batch {
		s := &batch[i]
		if err != nil {
			s.Failed(now, l.unsettledUntil(now))
			continue
		}
		s.Answered(now, l.slotsTill(sent, s.TTL), replies[i].Granted, replies[i].Remaining)
		if s.Absolute {
			l.lines.release(s.Held.Rule, remote.UserKey(s.Held.Key)) // who waits may ask again
		}
	}
	return err == nil
}

// slotNow is the limiter's time as Redis may see it, which has whole microseconds.
func (l *Limiter) slotNow() int64 {
	now := l.now()
	return now - now%int64(time.Microsecond)
}

// slotsTill is until when slots may be believed in that Redis keeps for ttl, from when it was
// asked: it ends here before it does there, also if the clocks do not run at the same speed.
func (l *Limiter) slotsTill(sent int64, ttl time.Duration) int64 {
	if l.config.virtualClock != nil {
		return math.MaxInt64 // there is nobody to tell Redis while time passes, see roundOfSlots
	}
	return sent + int64(ttl-ttl/lease.Drift)
}

// unsettledUntil is when entries whose answers were lost can change nothing any more: none is
// asked for later than it returns, nor later charged than the deadline (law 4).
func (l *Limiter) unsettledUntil(now int64) int64 {
	if l.config.virtualClock != nil {
		return now
	}
	return now + int64(l.config.deadline)
}

// roundOfSlots does in virtual time, which may pass in steps of hours, what the keeper does
// otherwise: before Redis is asked it is told what is held.
func (l *Limiter) roundOfSlots() {
	if l.config.virtualClock == nil {
		return
	}
	k, now := &l.slots, l.now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if now != k.told {
		k.told = now
		k.table.Doubt(now, func(local.HeldKey) bool { return true })
	}
	l.tellSlots(now, false)
}

// closeSlots gives all slots back (law 12).
func (l *Limiter) closeSlots() {
	k := &l.slots
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	until := time.Now().Add(l.config.deadline)
	for k.table.EndAll(l.now()); k.table.Keys() > 0 && time.Now().Before(until); k.table.EndAll(l.now()) {
		l.tellSlots(l.now(), false)
		if k.table.Keys() > 0 {
			time.Sleep(time.Millisecond) // entries are on their way
		}
	}
}
