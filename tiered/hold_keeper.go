package tiered

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/internal/outage"
)

const (
	// mostSettlements is how many settlements wait for Redis at most, at some 200 bytes each.
	mostSettlements = 16384
	// settledAtOnce is how many of them are sent at the same time.
	settledAtOnce = 64
)

// holdKeeper has the holds of all rules of a limiter, and the settlements that wait for Redis.
type holdKeeper struct {
	once   sync.Once
	lastID atomic.Uint64

	sending  sync.Mutex // held while what waits is sent
	mu       sync.Mutex // guards the fields below
	waiting  []settlement
	underWay int           // were taken out of waiting, and may come back
	wake     chan struct{} // nil until something waits
	ended    bool
}

// holdCounts are those of the holds of all rules of one name.
type holdCounts struct {
	open, units, waiting           atomic.Int64 // now
	settled, late, reclaimed, lost atomic.Int64
}

func (c *holdCounts) opened(units int64) {
	c.open.Add(1)
	c.units.Add(units)
}

func (c *holdCounts) closed(units int64) {
	c.open.Add(-1)
	c.units.Add(-units)
}

// HoldStats counts what this process holds for costs that are known afterwards, see [Rule.Hold].
type HoldStats struct {
	// Open is how many holds of this process are neither settled nor cancelled, and Units how
	// many units they hold.
	Open, Units int64
	// Unsettled is how many settlements wait for Redis.
	Unsettled int64
	// Settled is how many settlements have been made. Late is how many came after the hold's
	// end, and Reclaimed of how many the units had been given back by then.
	Settled, Late, Reclaimed int64
	// Lost is how many settlements found that Redis no longer knew of the hold, or were given up:
	// what was held stays charged there, if it still is.
	Lost int64
}

// add adds those of the rules of a name.
func (s *HoldStats) add(c *holdCounts) {
	s.Open += c.open.Load()
	s.Units += c.units.Load()
	s.Unsettled += c.waiting.Load()
	s.Settled += c.settled.Load()
	s.Late += c.late.Load()
	s.Reclaimed += c.reclaimed.Load()
	s.Lost += c.lost.Load()
}

// put has a settlement made in the background.
func (k *holdKeeper) put(l *Limiter, s settlement) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended || len(k.waiting)+k.underWay >= mostSettlements {
		s.rule.metrics.holds.lost.Add(1)
		return
	}
	if k.wake == nil {
		k.wake = make(chan struct{}, 1)
		l.background.Go(l.keepSettling)
	}
	k.waiting = append(k.waiting, s)
	s.rule.metrics.holds.waiting.Add(1)
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// keepSettling runs in the background, once a settlement waits.
func (l *Limiter) keepSettling() {
	k := &l.holds
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-k.wake:
		}
		for l.sendWaiting(settledAtOnce) {
			select {
			case <-l.ctx.Done():
				return
			case <-time.After(outage.ProbeEvery):
			}
		}
	}
}

// sendWaiting sends what waits, some at a time, until nothing does or none of them can be made now.
// It reports whether something is left.
func (l *Limiter) sendWaiting(some int) (left bool) {
	k := &l.holds
	k.sending.Lock()
	defer k.sending.Unlock()
	for {
		k.mu.Lock()
		batch := append([]settlement(nil), k.waiting[:min(some, len(k.waiting))]...)
		k.waiting, k.underWay = k.waiting[len(batch):], len(batch)
		k.mu.Unlock()
		if len(batch) == 0 {
			return false
		}
		made := make([]bool, len(batch))
		var trips sync.WaitGroup
		for i := range batch {
			if batch[i].after <= l.now() {
				trips.Go(func() { made[i] = l.send(context.Background(), &batch[i]) }) // they share one
			}
		}
		trips.Wait()
		k.mu.Lock()
		progress := false
		k.underWay = 0
		for i := range batch {
			if made[i] {
				progress = true
				batch[i].rule.metrics.holds.waiting.Add(-1)
			} else {
				k.waiting = append(k.waiting, batch[i])
			}
		}
		k.mu.Unlock()
		if !progress {
			return true
		}
	}
}

// closeHolds makes the settlements that wait, as far as Redis answers (law 12).
func (l *Limiter) closeHolds() {
	k := &l.holds
	k.mu.Lock()
	k.ended = true
	after := int64(0)
	for i := range k.waiting {
		after = max(after, k.waiting[i].after)
	}
	k.mu.Unlock()
	if wait := after - l.now(); wait > 0 {
		time.Sleep(time.Duration(wait)) // no longer than the limiter's deadline
	}
	l.sendWaiting(settledAtOnce)
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := len(k.waiting); n > 0 {
		for i := range k.waiting {
			k.waiting[i].rule.metrics.holds.lost.Add(1)
		}
		l.log.Warn("settlements", "holds could not be settled before the limiter was closed; what was held stays charged", "settlements", n)
	}
}
