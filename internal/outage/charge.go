package outage

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/internal/wake"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local/ledger"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// Charging back is bounded in volume and rate, so that it does not affect other users of Redis:
// batches of a bounded number of keys, each followed by a pause in proportion to the time that it
// took.
const (
	chargedAtOnce = 64
	chargePauses  = 2
)

// charger charges units in Redis that were granted without it, each once (law 3), with its age.
type charger struct {
	wake wake.Signal
	// busy says that units were taken out of the journal, which Redis may not have yet.
	busy atomic.Bool
	// taken is how many units were.
	taken atomic.Int64

	// Used only by the charging goroutine: the pending charges, and since when. They keep their
	// sequence until they are known to be charged, so that Redis charges them once.
	pending  []ledger.Debt[*Rule]
	since    time.Time
	sequence int64
	// torn are charges that a Cluster refused because their slot is moving, and which were certainly not
	// made, and since when there are any. They wait until nothing else does, since a slot may be moving for
	// long.
	torn      []ledger.Debt[*Rule]
	tornSince time.Time
}

// Owes reports whether there are units still to be charged in Redis.
func (s *Shard) Owes() bool {
	return s.all.Ledger.WaitingIn(s.has()) > 0 || s.charger.busy.Load()
}

// Uncharged returns the number of units that were granted without Redis and that it has not confirmed
// to be charged.
func (l *Shards) Uncharged() int64 {
	units, _ := l.Ledger.Waiting()
	for _, s := range l.routes.Load().shards {
		units += s.charger.taken.Load()
	}
	return units
}

// ChargeRest waits until Redis has been charged for all that was granted without it, or until ctx ends,
// whose error it returns then. For masters that count as lost it waits if lostToo says so. What has not
// been charged when the process ends is charged by nobody, and Redis grants it again.
func (l *Shards) ChargeRest(ctx context.Context, lostToo bool) error {
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for l.hurriesCharging(lostToo) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
	}
	return nil
}

// hurriesCharging reports whether [Shards.ChargeRest] waits for any shard, and wakes the chargers of those.
func (l *Shards) hurriesCharging(lostToo bool) (waits bool) {
	for _, s := range l.InUse() {
		if s.Owes() && (lostToo || s.Breaker.Closed()) {
			s.charger.wake.Send()
			waits = true
		}
	}
	return waits
}

// chargeSome runs in the background, and charges a batch. It returns the pause before the next one, or 0
// if there is nothing to charge or Redis is lost.
func (s *Shard) chargeSome() (pause time.Duration) {
	l, c := s.all, &s.charger
	if !s.Breaker.Closed() {
		return 0
	}
	c.busy.Store(true)
	defer func() {
		c.count()
		c.busy.Store(len(c.pending)+len(c.torn) > 0)
	}()
	c.pending = l.remaining(c.pending)
	if len(c.pending) > 0 && time.Since(c.since) > remote.ChargeRepeats/2 {
		// Redis may no longer remember whether it has charged them.
		l.lose(c.pending)
		c.pending = nil
	}
	if len(c.torn) > 0 && time.Since(c.tornSince) > remote.ChargeRepeats/2 {
		l.lose(c.torn) // others wait for this instance to have charged all
		c.torn = nil
	}
	again, torn := len(c.pending) > 0, false
	if !again {
		c.sequence = l.sequences.Add(1)
		c.since = time.Now()
		if c.pending = l.Ledger.Uncharged(s.has(), chargedAtOnce-len(c.torn), l.Now()); len(c.pending) == 0 {
			c.pending, c.torn, torn = l.remaining(c.torn), nil, true
		}
		if len(c.pending) == 0 {
			s.hasRepaid()
			return 0
		}
		c.count()
	}
	started := time.Now()
	losses := s.memory.lossesSoFar()
	unknown, refused, oldest := s.charge(c.pending, c.sequence, again)
	if s.memory.charged(oldest, losses) {
		if len(c.torn) == 0 && !torn {
			c.tornSince = started
		}
		c.pending, c.torn = unknown, append(c.torn, refused...)
	}
	pause = chargePauses * time.Since(started)
	if len(c.pending) > 0 || torn {
		pause += ProbeEvery
	}
	return max(time.Millisecond, pause)
}

// lose gives up debts: their rules settle for a window.
func (l *Shards) lose(debts []ledger.Debt[*Rule]) {
	for _, d := range debts {
		l.Ledger.Lose(d, l.Now()+int64(d.Owner.Limit.Window()))
	}
}

// count counts the units of the pending and the torn charges.
func (c *charger) count() {
	var units int64
	for _, d := range slices.Concat(c.pending, c.torn) {
		for _, p := range d.Parts {
			units += p.Units
		}
	}
	c.taken.Store(units)
}

// remaining returns what is left of debts that were taken out of the ledger earlier.
func (l *Shards) remaining(debts []ledger.Debt[*Rule]) (left []ledger.Debt[*Rule]) {
	for _, d := range debts {
		if d = l.Ledger.Remaining(d); len(d.Parts) > 0 {
			left = append(left, d)
		}
	}
	return left
}

// charge charges debts in Redis. It returns those of which it is not known whether they were
// charged, those that were not because their slot is moving, and when the oldest unit of the others was
// granted, 0 if there are none. again says that they were sent before.
func (s *Shard) charge(debts []ledger.Debt[*Rule], sequence int64, again bool) (unknown, torn []ledger.Debt[*Rule], oldest int64) {
	l := s.all
	var mu sync.Mutex // guards the results
	var trips sync.WaitGroup
	for _, d := range debts {
		r := d.Owner
		e := remote.Entry{
			Key: d.Key, Rule: r.Encoded, Operation: lua.Charge,
			Charges: r.charges(d, l.Now(), s.Outage().Fleet),
			Marker:  l.Instance, Sequence: sequence,
		}
		if len(e.Charges) == 0 {
			continue
		}
		trips.Go(func() { // they share a trip
			reply, err := s.Decide(l.Context, e)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				oldest = earlier(oldest, d.Parts[0].At)
				units := reply.Granted
				if again && units == 0 { // it had been charged, and the answer was lost
					for _, c := range e.Charges {
						units += c.Units
					}
				}
				l.Counts.Charged(units)
			case errors.Is(err, remote.ErrUnreadable):
				l.Unreadable(err)
			case remote.IsMoving(err) && !again:
				torn = append(torn, d)
			default:
				unknown = append(unknown, d)
			}
		})
	}
	trips.Wait()
	return unknown, torn, oldest
}

// charges is what to charge for a debt. Ages are told, not times: what is under way gets
// younger by it, so its units leave late rather than early.
func (r *Rule) charges(d ledger.Debt[*Rule], now int64, fleet int) (charges []remote.Charge) {
	if r.Algorithm.Same(limit.GCRA()) {
		if units := r.debt(d, now, fleet); units > 0 {
			charges = append(charges, remote.Charge{Units: units})
		}
		return charges
	}
	for _, p := range d.Parts {
		charges = append(charges, remote.Charge{Units: p.Units, Age: time.Duration(max(0, now-p.At))})
	}
	return charges
}

// debt returns what would be left of a debt under GCRA now, if this instance's share were the
// limit. The fleet's debt is at most the sum of its instances'.
func (r *Rule) debt(d ledger.Debt[*Rule], now int64, fleet int) int64 {
	share := d.Share * float64(r.Limit.Quota())
	if share == 0 {
		share = float64(r.Limit.Quota()) / float64(max(1, fleet))
	}
	paid := func(from, to int64) float64 { return share * float64(to-from) / float64(r.Limit.Window()) }
	units, last := 0.0, int64(0)
	for _, p := range d.Parts {
		units = max(0, units-paid(last, p.At)) + float64(p.Units)
		last = p.At
	}
	return int64(math.Ceil(max(0, units-paid(last, now))))
}
