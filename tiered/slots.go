package tiered

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/internal/lease"
	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// SlotTTL sets how long slots of a limit of [limit.Concurrent] outlive their process, 100 ms to 10
// minutes; the default is 10 seconds. Processes tell Redis three times in that time that they are
// alive, in one batch for all keys. A process that cannot, because it is paused or Redis cannot be
// reached, loses its slots after that time, and knows it (see [Slot.Held]).
//
// With a short TTL the slots of a crashed process are free sooner; with a long one processes keep
// their slots through longer pauses.
func SlotTTL(d time.Duration) RuleOption {
	return func(c *ruleConfig) error {
		if d < 100*time.Millisecond || d > longestSlotTTL || d%time.Microsecond != 0 {
			return option.Invalid("SlotTTL of %v, must be between 100ms and %v, and a whole number of microseconds", d, longestSlotTTL)
		}
		c.slotTTL = d
		return nil
	}
}

const (
	defaultSlotTTL = 10 * time.Second
	longestSlotTTL = lua.LongestSlot * time.Microsecond
	// renewals is how often in a TTL Redis is told that the process is alive.
	renewals = 3
	// renewalsAfterFailure is how often after Redis could not be reached.
	renewalsAfterFailure = 12
	// slotDenialLife is how long a denial is remembered; it is short, because slots may be released
	// at any time.
	slotDenialLife = 25 * time.Millisecond
	// acquireAgain is how often to ask for slots that other processes hold, because nothing reports
	// when they are released.
	acquireAgain = 50 * time.Millisecond
	// statementsAtOnce is how many trips with statements are made at the same time.
	statementsAtOnce = 8
)

// slotTerms are the parameters of a rule with a limit of [limit.Concurrent].
type slotTerms struct {
	ttl time.Duration
}

// describedSlotsRule is describedRule for concurrency limits.
func (l *Limiter) describedSlotsRule(name string, lim limit.Limit, c ruleConfig) (*Rule, error) {
	meaningless := ""
	switch {
	case !c.algorithm.IsAutomatic() && c.algorithm != limit.Concurrency():
		meaningless = fmt.Sprintf("Use(%v)", c.algorithm)
	case c.need.Stated():
		meaningless = "Need"
	case c.leased > 0:
		meaningless = "Lease"
	case c.shadow > 0:
		meaningless = "Shadow"
	case c.countDenied:
		meaningless = "CountDenied"
	case c.holdLife != 0:
		meaningless = "HoldLife"
	}
	if meaningless != "" {
		return nil, fmt.Errorf("rule %q: %w", name, option.Invalid("%s does not go with the limit %v, which has no window", meaningless, lim))
	}
	terms := &slotTerms{ttl: c.slotTTL}
	if terms.ttl == 0 {
		terms.ttl = defaultSlotTTL
	}
	encoded, err := remote.NewSlotsRule(lim, terms.ttl, l.slots.holder)
	if err != nil {
		return nil, fmt.Errorf("rule %q: %w", name, err)
	}
	r := &Rule{
		limiter: l, name: name, asked: lim, limit: lim, inRedis: lim, config: c,
		algorithm:  limit.Concurrency(),
		why:        "units are held at the same time, and have no window.",
		capacity:   lim.Quota(),
		mostCost:   lim.Quota(),
		denialSalt: l.hasher.Salt(fmt.Sprint("denial ", name, " ", lim)),
		metrics:    l.metrics.rule(name, c.dryRun),
		slots:      terms,
	}
	r.encoded = encoded.Named(l.keys, name, (*asker)(r))
	return r, nil
}

// slotKeeper has the slots of all rules of a limiter.
type slotKeeper struct {
	table  *local.Slots
	holder remote.Holder
	wake   chan struct{}
	third  atomic.Int64 // of the shortest TTL, in ns; 0: there is no rule with slots

	mu     sync.Mutex // guards the fields below
	closed bool
	told   int64 // time of the last statements, in virtual time
}

// initSlots must be called before any rule is made.
func (l *Limiter) initSlots() {
	l.slots.table, l.slots.wake = local.NewSlots(l.wakeSlots), make(chan struct{}, 1)
	_, _ = rand.Read(l.slots.holder[:]) // never fails
}

// startSlots starts renewing the slots of rules with that TTL.
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

// wakeSlots wakes the keeper. It never waits.
func (l *Limiter) wakeSlots() {
	select {
	case l.slots.wake <- struct{}{}:
	default:
	}
}

// keepSlots runs in the background: it tells Redis what is held, and notifies holders of lost
// slots.
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

// keepsSlots reports whether slots are kept although Redis cannot be told. While Redis counts as
// lost, that depends on the outage policy.
func (l *Limiter) keepsSlots(owner any, key string) bool {
	return owner.(*Rule).config.policy != Deny && !l.shards.Of(remote.UserKey(key)).Breaker.Closed()
}

// canTell reports whether Redis can be told what is held of a key.
func (l *Limiter) canTell(_ any, key string) bool {
	return l.shards.Of(remote.UserKey(key)).Breaker.Closed()
}

// doubtSlots puts a shard's keys in doubt, so that Redis is told what is held of them.
func (l *Limiter) doubtSlots(s *outage.Shard) {
	l.slots.table.Doubt(l.now(), func(_ any, key string) bool { return l.shards.Of(remote.UserKey(key)) == s })
}

// tellSlots sends Redis the statements that are due, and reports whether it has received them.
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

// slotBatches divides statements into batches of one trip each: on a Cluster one slot's.
func (l *Limiter) slotBatches(statements []local.Statement) (batches [][]local.Statement) {
	groups := map[uint16][]local.Statement{}
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

// tellBatch makes a trip. A key that cannot be read must not affect the others (law 7): in that
// case each statement is sent by itself.
func (l *Limiter) tellBatch(batch []local.Statement) (told bool) {
	entries := make([]remote.Entry, len(batch))
	for i := range batch {
		s := &batch[i]
		entries[i] = remote.Entry{Key: s.Held.Key, Rule: s.Owner.(*Rule).encoded, Operation: lua.Slots, Cost: lua.SlotsAsKnown}
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
			r := s.Owner.(*Rule)
			l.lines.release(r.name, remote.UserKey(s.Held.Key)) // waiting callers may ask again
		}
	}
	return err == nil
}

// slotNow returns the limiter's time in whole microseconds, as Redis's clock has.
func (l *Limiter) slotNow() int64 {
	now := l.now()
	return now - now%int64(time.Microsecond)
}

// slotsTill returns the time until which slots are valid here that Redis keeps for ttl. It counts
// from before Redis was asked, and ends earlier here than in Redis even if the clocks run at
// different speeds.
func (l *Limiter) slotsTill(sent int64, ttl time.Duration) int64 {
	if l.config.virtualClock != nil {
		return math.MaxInt64 // nothing renews slots while virtual time passes, see roundOfSlots
	}
	return sent + int64(ttl-ttl/lease.Drift)
}

// unsettledUntil returns the time after which entries whose answers were lost can no longer change
// anything in Redis (law 4).
func (l *Limiter) unsettledUntil(now int64) int64 {
	if l.config.virtualClock != nil {
		return now
	}
	return now + int64(l.config.deadline)
}

// roundOfSlots replaces the keeper in virtual time, which may pass in steps of hours: it tells
// Redis what is held before Redis is asked.
func (l *Limiter) roundOfSlots() {
	if l.config.virtualClock == nil {
		return
	}
	k, now := &l.slots, l.now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if now != k.told {
		k.told = now
		k.table.Doubt(now, func(any, string) bool { return true })
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
			time.Sleep(time.Millisecond) // entries are in flight
		}
	}
}

// notHeld is the error of acquiring units of a rule that is no concurrency limit.
func (r *Rule) notHeld() error {
	return fmt.Errorf("%w: rule %q has the limit %v, whose units are used up and not given back: use Allow", limit.ErrNotForLimit, r.name, r.asked)
}
