package tiered

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/internal/wake"
)

const (
	// maxSettlements is the largest number of settlements that wait for one master, at some 200 bytes
	// each. The limit is per master, so a lost master takes no room from the settlements of other
	// masters.
	maxSettlements = 16384
	// settledAtOnce is the number of waiting settlements that are sent at the same time.
	settledAtOnce = 64
)

// holdKeeper numbers the holds of a limiter, and sends the settlements that wait for Redis.
type holdKeeper struct {
	lastID atomic.Uint64 // begins at a random number below 2^63, and so never reaches 0, which identifies no hold

	sending sync.Mutex // held while waiting settlements are sent
	mu      sync.Mutex // guards the fields below
	waiting []settlement
	pending map[*outage.Shard]int // settlements that wait or are in flight, by the shard for which they were put
	wake    wake.Signal           // nil until a settlement waits
	ended   bool
}

// holdCounts counts the holds of all rules of one name; see HoldStats.
type holdCounts struct {
	open, units, waiting           atomic.Int64 // current values
	settled, late, reclaimed, lost atomic.Int64
}

// change adds to the number of open holds and to the number of their units. Both may be negative.
func (c *holdCounts) change(holds, units int64) {
	c.open.Add(holds)
	c.units.Add(units)
}

// HoldStats counts the holds of this process and their settlements; see [Rule.Hold].
type HoldStats struct {
	// Open is the number of holds that are neither settled nor cancelled, and Units is the number
	// of units that they hold.
	Open, Units int64
	// Unsettled is the number of settlements that wait for Redis.
	Unsettled int64
	// Settled is the number of settlements that were made. Late is the number of holds that were settled
	// after their end. Reclaimed is the number of holds whose units had been given back by the time they
	// were settled.
	Settled, Late, Reclaimed int64
	// Lost is the number of settlements that were given up, or whose hold Redis no longer knew. Their
	// held units stay charged in Redis, if Redis still has them.
	Lost int64
}

// add adds the counts of the rules of one name.
func (s *HoldStats) add(c *holdCounts) {
	s.Open += c.open.Load()
	s.Units += c.units.Load()
	s.Unsettled += c.waiting.Load()
	s.Settled += c.settled.Load()
	s.Late += c.late.Load()
	s.Reclaimed += c.reclaimed.Load()
	s.Lost += c.lost.Load()
}

// put queues a settlement, to be sent in the background.
func (k *holdKeeper) put(l *Limiter, s settlement) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s.shard = l.shardOf(&s.key)
	if k.ended || k.pending[s.shard] >= maxSettlements {
		s.rule.counters.holds.lost.Add(1)
		return
	}
	if k.wake == nil {
		k.wake = wake.NewSignal()
		l.background.Go(func() { k.wake.Run(l.ctx, l.keepSettling) })
	}
	k.waiting = append(k.waiting, s)
	k.pending[s.shard]++
	s.rule.counters.holds.waiting.Add(1)
	k.wake.Send()
}

// keepSettling runs in the background from the first put on, and sends waiting settlements until Close
// sends the rest. It returns the pause before the remaining settlements are sent, or 0 if none remain.
func (l *Limiter) keepSettling() (pause time.Duration) {
	if l.sendWaiting(context.Background(), false) {
		return outage.ProbeEvery
	}
	return 0
}

// sendable removes up to settledAtOnce settlements that can be sent now from the waiting ones, and
// returns them. It skips settlements whose master is lost, so that they do not delay those of other
// masters. Once Close wants to send the settlements, only Close's last call gets any.
func (k *holdKeeper) sendable(l *Limiter, last bool) (batch []settlement) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended && !last {
		return nil
	}
	var others []settlement
	seen := 0
	for now := l.now(); seen < len(k.waiting) && len(batch) < settledAtOnce; seen++ {
		s := &k.waiting[seen]
		if s.settledFrom <= now && l.shardOf(&s.key).Breaker.Closed() {
			batch = append(batch, *s)
		} else {
			others = append(others, *s)
		}
	}
	k.waiting = append(k.waiting[seen:], others...)
	return batch
}

// sendWaiting sends waiting settlements, settledAtOnce at a time. It stops when none can be sent, or when ctx ends.
// Unless this is Close's last call, it also stops when no settlement of a batch was made, and when Close wants to send
// the settlements, and takes none of them after that: it may have waited for Close's call, and a batch that fails once
// Close has given up the rest would count as waiting forever. It reports whether any are left.
func (l *Limiter) sendWaiting(ctx context.Context, last bool) (left bool) {
	k := &l.holds
	k.sending.Lock()
	defer k.sending.Unlock()
	for {
		batch := k.sendable(l, last)
		made := make([]bool, len(batch))
		var trips sync.WaitGroup
		for i := range batch {
			trips.Go(func() { made[i] = l.send(ctx, &batch[i]) }) // the sends share a trip
		}
		trips.Wait()
		k.mu.Lock()
		for i := range batch {
			if made[i] {
				batch[i].rule.counters.holds.waiting.Add(-1)
				k.pending[batch[i].shard]--
			} else {
				k.waiting = append(k.waiting, batch[i])
			}
		}
		left = len(k.waiting) > 0
		k.mu.Unlock()
		none := !slices.Contains(made, true)
		if len(batch) == 0 || none && !last || ctx.Err() != nil {
			return left
		}
		if none {
			time.Sleep(time.Millisecond) // nobody sends them after Close
		}
	}
}

// areWaiting reports whether any settlements wait or are in flight.
func (k *holdKeeper) areWaiting() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range k.pending {
		if n > 0 {
			return true
		}
	}
	return false
}

// closeHolds sends the waiting settlements, until ctx ends or Redis counts as lost. It gives up those for which Redis
// does not answer (law 12).
func (l *Limiter) closeHolds(ctx context.Context) {
	k := &l.holds
	k.mu.Lock()
	k.ended = true
	from := int64(0)
	for i := range k.waiting {
		from = max(from, k.waiting[i].settledFrom)
	}
	k.mu.Unlock()
	if wait := from - l.now(); wait > 0 {
		time.Sleep(time.Duration(wait)) // no longer than the limiter's deadline
	}
	l.sendWaiting(ctx, true)
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := len(k.waiting); n > 0 {
		for i := range k.waiting {
			holds := &k.waiting[i].rule.counters.holds
			holds.waiting.Add(-1)
			holds.lost.Add(1)
		}
		k.waiting = nil // so that the background goroutine sends none of them later
		l.log.Warn("settlements", "holds could not be settled before the limiter was closed; their units stay charged", "settlements", n)
	}
}
