package outage

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/breaker"
	"github.com/tierlimit/tierlimit/internal/wake"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local/ledger"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// Charging back is bounded in volume and rate, so that it does not affect other users of Redis. It sends
// batches of a bounded number of keys, and after each batch pauses in proportion to the time that the
// batch took.
const (
	chargedAtOnce = 64
	chargePauses  = 3
)

// While decisions miss Redis, charges take the place of decisions there; see sparesRedis.
const (
	// Only charges are sent that matter: of keys for which the fleet may have granted at least a matteringPart-th of the
	// limit without Redis.
	matteringPart = 16
	// There is at most one charge for decisionsPerCharge decisions that Redis makes for this instance. So the part of
	// Redis's time that charges take does not grow with the fleet.
	decisionsPerCharge = 8
	// Large batches would delay decisions, of which then more miss Redis.
	chargedSparingly = 32
)

// A charge may take several deadlines, because nobody waits for it. But it has at most chargedWithin, or one deadline if
// that is longer, since Close waits for charges under way.
const (
	chargedDeadlines = 4
	chargedWithin    = 250 * time.Millisecond
)

// givenUpAfter is how long an unanswered charge is repeated, and how long the charger waits for a slot
// that is moving.
const givenUpAfter = int64(remote.ChargeRepeats / 2)

// charger charges units in Redis that were granted without it. It charges each unit once (law 3), with
// its age.
type charger struct {
	wake wake.Signal

	// Only the charging goroutine uses the rest.

	// moving has the slots for which a Cluster refuses charges because they are moving, with the time of
	// the first refusal. Charges that were certainly not made are back in the journal. Charges that were
	// sent before, and may have been made, are pending: at most 64 per slot, because no others are sent
	// until they are answered. All slots in moving share one batch four times a second, so that other
	// slots do not wait for them.
	moving map[int]int64
	retry  int64 // when the next batch for moving slots is due

	nextAfter int64 // how many decisions must have been answered before the next batch, if Redis is spared
}

// charges are all charges that are out of the journal and that Redis may not have yet. If a slot moves,
// its pending charges move with it to the charger of its new shard. While a goroutine holds mu, every
// debt is either here or in the journal.
type charges struct {
	mu      sync.Mutex
	out     []*charge
	awaited atomic.Int32 // callers of [Shards.ChargeRest]
}

// charge is a debt that Redis is charged with. A repeated charge keeps its sequence, by which Redis
// recognizes whether it was made.
type charge struct {
	ledger.Debt[*Rule]
	sequence int64
	since    int64  // when the charge was sent first
	repeated bool   // it has been sent before
	by       *Shard // whose charger is sending it; nil: it is pending, and nobody knows whether it was made
	// reset is set if the key was reset while the charge was being sent. It is closed when the charge has been
	// answered or given up. Then nothing is left to be charged.
	reset chan struct{}
}

// Owes reports whether any units must still be charged in Redis.
func (s *Shard) Owes() bool {
	l, has := s.all, s.has()
	l.charges.mu.Lock()
	defer l.charges.mu.Unlock()
	return slices.ContainsFunc(l.charges.out, func(d *charge) bool { return has(d.Group) }) || l.Ledger.WaitingIn(has) > 0
}

// Uncharged returns the number of units that were granted without Redis, and whose charge Redis has not
// confirmed.
func (l *Shards) Uncharged() int64 {
	l.charges.mu.Lock()
	defer l.charges.mu.Unlock()
	units, _ := l.Ledger.Waiting()
	for _, d := range l.charges.out {
		for _, p := range d.Parts {
			units += p.Units
		}
	}
	return units
}

// ChargeRest waits until Redis has been charged for everything that was granted without it. If ctx ends
// first, it returns ctx's error. It also ends if nothing is charged any more because the limiter is
// closed. It waits for masters that count as lost only if lostToo is set. If the process ends before all
// units have been charged, nobody charges the rest, and Redis grants them again.
func (l *Shards) ChargeRest(ctx context.Context, lostToo bool) error {
	l.charges.awaited.Add(1)
	defer l.charges.awaited.Add(-1)
	return l.Await(ctx, func() bool { return l.hurriesCharging(lostToo) })
}

// Await waits until waits returns false. It ends earlier with ctx's error if ctx ends, or with
// [limit.ErrClosed] if the limiter is closed.
func (l *Shards) Await(ctx context.Context, waits func() bool) error {
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for waits() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.Context.Done():
			return limit.ErrClosed
		case <-look.C:
		}
	}
	return nil
}

// hurriesCharging reports whether [Shards.ChargeRest] must wait for any shard, and wakes the chargers of
// those shards.
func (l *Shards) hurriesCharging(lostToo bool) (waits bool) {
	for _, s := range l.InUse() {
		if s.Owes() && (lostToo || s.Breaker.Closed()) {
			s.charger.wake.Send()
			waits = true
		}
	}
	return waits
}

// chargeSome runs in the background, and charges one batch. It returns the pause before the next batch,
// or 0 if there is nothing to charge or Redis is lost.
func (s *Shard) chargeSome() (pause time.Duration) {
	c := &s.charger
	if !s.Breaker.Closed() {
		return 0
	}
	started, now := time.Now(), s.all.Now()
	sparing := s.sparesRedis(now)
	if sparing && c.nextAfter > 0 && s.Answered() < c.nextAfter {
		return min(s.all.Deadline, ProbeEvery)
	}
	batch := s.nextCharges(now, sparing)
	switch {
	case len(batch) > 0:
		c.nextAfter = s.Answered() + int64(len(batch))*decisionsPerCharge
	case len(c.moving) > 0:
		return time.Duration(c.retry - now)
	default:
		if s.owesNow() && sparing {
			return ProbeEvery
		}
		return 0
	}
	unanswered, refused := s.charge(batch)
	for slot, isMoving := range refused {
		if isMoving {
			s.refuses(slot, now)
		} else {
			delete(c.moving, slot)
		}
	}
	pause = chargePauses * time.Since(started)
	if unanswered {
		pause += ProbeEvery
	}
	return max(time.Millisecond, pause)
}

// nextCharges returns the next batch, of at most 64 debts, or fewer if Redis is spared. It prefers unanswered charges, because Redis
// would answer other charges no better. Next come charges of slots that were moving, when they are due,
// and then all others.
func (s *Shard) nextCharges(now int64, sparing bool) (batch []*charge) {
	l, c := s.all, &s.charger
	l.charges.mu.Lock()
	defer l.charges.mu.Unlock()
	if batch = s.repeats(now, false); len(batch) > 0 {
		return batch
	}
	if len(c.moving) > 0 && now >= c.retry {
		c.retry = now + int64(ProbeEvery)
		batch = s.repeats(now, true)
		batch = append(batch, s.newCharges(now, true, chargedAtOnce-len(batch), sparing)...)
		if len(batch) < chargedAtOnce { // no charge waits for the slots that are not in it
			maps.DeleteFunc(c.moving, func(slot int, _ int64) bool {
				return !slices.ContainsFunc(batch, func(d *charge) bool { return d.Group == slot })
			})
		}
		if len(batch) > 0 {
			return batch
		}
	}
	most := chargedAtOnce
	if sparing {
		most = chargedSparingly
	}
	return s.newCharges(now, false, most, sparing)
}

// repeats takes pending charges for a batch, either those of slots that are moving or the others. It
// gives up charges that are too old.
func (s *Shard) repeats(now int64, moving bool) (batch []*charge) {
	l, c, has := s.all, &s.charger, s.has()
	l.charges.out = slices.DeleteFunc(l.charges.out, func(d *charge) (over bool) {
		if d.by != nil {
			return false
		}
		d.Debt = l.Ledger.Remaining(d.Debt)
		switch {
		case len(d.Parts) == 0:
			return true
		case now-d.since > givenUpAfter: // Redis may no longer remember whether the charge was made
			l.giveUp(d.Debt)
			return true
		case has(d.Group) && c.isMoving(d.Group) == moving && len(batch) < chargedAtOnce:
			d.by = s
			batch = append(batch, d)
		}
		return false
	})
	return batch
}

// newCharges takes up to most debts out of the journal, either those of slots that are moving or the
// others. Redis recognizes a charge by its sequence, and remembers only the newest sequence of a key. So
// newCharges takes no debts of a slot with unanswered charges, and only one debt for each rule and key.
// (After a change of the rule's window, a key may have two records.)
func (s *Shard) newCharges(now int64, moving bool, most int, sparing bool) (batch []*charge) {
	l, c, has := s.all, &s.charger, s.has()
	taken := make(map[int]bool)
	for _, d := range l.charges.out {
		taken[d.Group] = true
	}
	in := func(slot int) bool { return has(slot) && c.isMoving(slot) == moving && !taken[slot] }
	var matters func(of *Rule, units int64) bool // nil: all
	if sparing {
		fleet := int64(max(1, s.Outage().Fleet))
		matters = func(of *Rule, units int64) bool { return units >= of.Limit.Quota()/(matteringPart*fleet) }
	}
	sequence := l.sequences.Add(1)
	type ruleKey struct{ rule, key string }
	keys := make(map[ruleKey]bool)
	for _, d := range l.Ledger.Uncharged(in, most, now, matters) {
		if of := (ruleKey{d.Owner.Name, d.Key}); keys[of] {
			l.Ledger.PutBack(d)
		} else {
			keys[of] = true
			d.Owner = d.Owner.Latest() // and not when it is repeated: Redis may have forgotten the charge under the old window
			batch = append(batch, &charge{Debt: d, sequence: sequence, since: now, by: s})
		}
	}
	l.charges.out = append(l.charges.out, batch...)
	return batch
}

// sparesRedis reports whether only a few charges are sent, and only those that matter. All are sent if anybody waits for
// them: a caller of [Shards.ChargeRest], or the fleet, which settles until everything is charged. While decisions miss
// Redis often, the fleet settles anyway.
func (s *Shard) sparesRedis(now int64) bool {
	if s.all.charges.awaited.Load() > 0 {
		return false
	}
	missed, often := s.misses.lately(now)
	if e := s.incident.Load(); e != nil {
		return e.overload && often
	}
	return missed
}

// Reset forgets all units of a key, which Redis has just forgotten. What was still to be charged there is not charged
// any more. If a charge of the key is being sent, Redis may make it after it has forgotten the key. Reset then returns a
// channel that is closed when the charge can no longer be made, and Redis must forget the key again.
func (s *Shard) Reset(q *Request) (charging <-chan struct{}) {
	l := s.all
	l.charges.mu.Lock()
	defer l.charges.mu.Unlock()
	s.Returned(q, ledger.Oldest, math.MaxInt64, true)
	l.charges.out = slices.DeleteFunc(l.charges.out, func(d *charge) bool {
		switch {
		case d.Owner.Name != q.Rule.Name || d.Key != string(q.Key):
			return false
		case d.by == nil: // it was sent before, and its time is over
			return true
		case d.reset == nil:
			d.reset = make(chan struct{})
		}
		charging = d.reset
		return false
	})
	return charging
}

func (c *charger) isMoving(slot int) bool { return c.moving[slot] != 0 }

// refuses records that charges of a slot were refused because the slot is moving. If that lasts too long,
// the slot's debts are given up, since other instances wait until this one has charged everything.
func (s *Shard) refuses(slot int, now int64) {
	l, c := s.all, &s.charger
	since := c.moving[slot]
	switch {
	case since == 0:
		if len(c.moving) == 0 {
			c.moving, c.retry = make(map[int]int64), now+int64(ProbeEvery)
		}
		c.moving[slot] = max(1, now)
	case now-since > givenUpAfter:
		delete(c.moving, slot)
		l.charges.mu.Lock()
		defer l.charges.mu.Unlock()
		for {
			debts := l.Ledger.Uncharged(func(of int) bool { return of == slot }, chargedAtOnce, now, nil)
			if len(debts) == 0 {
				return
			}
			for _, d := range debts {
				l.giveUp(d)
			}
		}
	}
}

// giveUp gives up a debt. Its rule then settles for a window.
func (l *Shards) giveUp(d ledger.Debt[*Rule]) {
	l.Ledger.Lose(d, l.Now()+int64(d.Owner.Limit.Window()))
}

// charge charges a batch in Redis. Afterwards, charges are pending if nobody knows whether they were
// made. Charges that were certainly not made, because their slot is moving or Redis is lost again, are
// back in the journal. charge returns whether some charges were not answered, and for each slot of the
// batch whether it refused a charge because it is moving. The batch must not be used any more: other shards
// may have taken its charges.
func (s *Shard) charge(batch []*charge) (unanswered bool, refused map[int]bool) {
	l := s.all
	errs, remembers := s.sendCharges(batch)
	l.charges.mu.Lock()
	defer l.charges.mu.Unlock()
	l.charges.out = slices.DeleteFunc(l.charges.out, func(d *charge) bool { return d.by == s })
	refused = make(map[int]bool)
	for i, d := range batch {
		err := errs[i]
		if d.reset != nil {
			close(d.reset)
		}
		isMoving := remote.IsMoving(err)
		refused[d.Group] = refused[d.Group] || isMoving
		// If Redis may have lost a charge right after it had answered, the charge is sent again.
		if err == nil && remembers || errors.Is(err, remote.ErrUnreadable) {
			continue
		}
		unanswered = unanswered || !isMoving
		if d.reset != nil {
			continue
		}
		if !d.repeated && (isMoving || errors.Is(err, breaker.ErrOpen)) { // the charge was certainly not made
			l.Ledger.PutBack(d.Debt)
			continue
		}
		d.repeated, d.by = true, nil
		l.charges.out = append(l.charges.out, d)
	}
	return unanswered, refused
}

// sendCharges sends a batch to Redis, and returns the error of each charge. remembers is false if Redis has lost data
// meanwhile, perhaps including charges that it has answered.
//
// The charges do not wait for the trips of decisions. Under overload they would be turned away like these, and until
// Redis knows what was granted without it, it grants the same units again (law 11).
func (s *Shard) sendCharges(batch []*charge) (errs []error, remembers bool) {
	l := s.all
	losses := s.memory.lossesSoFar()
	errs = make([]error, len(batch))
	var entries []remote.Entry
	var sent []int    // their positions in the batch
	var since []int64 // the time of the oldest unit of each
	for i, d := range batch {
		debt := l.Ledger.Remaining(d.Debt) // without units that Redis has lost since
		charges := d.Owner.chargesFor(debt, l.Now(), s.decidesSince(), s.Outage().Fleet)
		if len(charges) == 0 {
			continue
		}
		entries = append(entries, remote.Entry{
			Key: d.Key, Rule: d.Owner.Encoded, Operation: lua.Charge,
			Charges: charges, Marker: l.Instance, Sequence: d.sequence,
		})
		sent, since = append(sent, i), append(since, debt.Parts[0].At)
	}
	replies := slices.Repeat([]remote.Reply{{Err: breaker.ErrOpen}}, len(entries))
	if s.Breaker.Closed() { // it may have opened since the batch was made
		replies = s.DecideApart(entries, max(l.Deadline, min(chargedDeadlines*l.Deadline, chargedWithin)))
	}
	var oldest int64 // time of the oldest unit that was charged
	for k, i := range sent {
		reply := &replies[k]
		if errors.Is(reply.Err, remote.ErrUnreadable) {
			l.Unreadable(reply.Err)
		}
		if errs[i] = reply.Err; reply.Err != nil {
			continue
		}
		units := reply.Granted
		if batch[i].repeated && units == 0 { // the charge had been made before, and the answer was lost
			for _, c := range entries[k].Charges {
				units += c.Units
			}
		}
		l.Counts.Charged.Add(units)
		oldest = earlier(oldest, since[k])
	}
	return errs, s.memory.charged(oldest, losses)
}
