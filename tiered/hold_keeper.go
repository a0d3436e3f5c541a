package tiered

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/breaker"
	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

const (
	// mostSettlements is how many settlements wait for Redis at most, at some 200 bytes each.
	mostSettlements = 16384
	// settledAtOnce is how many of them are sent at the same time.
	settledAtOnce = 64
)

// holding is what a decision that holds units has to say beside its cost.
type holding struct {
	terms remote.Hold
	// unknown: it was decided without Redis, which may hold the units all the same.
	unknown bool
}

// newHolding makes a hold that differs from all others of the fleet, as good as always.
func (l *Limiter) newHolding(life time.Duration) *holding {
	k := &l.holds
	k.once.Do(func() { k.lastID.Store(rand.Uint64()) })
	id := k.lastID.Add(1)
	for id == 0 {
		id = k.lastID.Add(1)
	}
	return &holding{terms: remote.Hold{ID: id, Life: life}}
}

// ask makes an entry that charges units one that holds them, if there is something to hold.
func (h *holding) ask(e *remote.Entry) {
	if h == nil {
		return
	}
	e.Hold = &h.terms
	if e.Operation == lua.TakeUpTo {
		e.Operation = lua.HoldUpTo
	} else {
		e.Operation = lua.Hold
	}
}

// decidedWithout takes note that the outage policy has decided. mayBeCharged: Redis may hold the
// units all the same.
func (h *holding) decidedWithout(mayBeCharged bool) {
	if h != nil {
		h.unknown = mayBeCharged
	}
}

func asksToHold(e *remote.Entry) bool { return e.Operation == lua.Hold || e.Operation == lua.HoldUpTo }

// settlement is what a hold took in the end.
type settlement struct {
	rule       *Rule
	key        callKey
	held, used int64
	granted    int64 // the limiter's time of the hold
	ends       int64 // and of its end
	local      bool  // the units were granted without Redis, which knows nothing of the hold
	unknown    bool  // they were granted without Redis, which may know of it all the same
	sent       bool  // it may have been made, or not, and Redis have said so to nobody
	recorded   bool  // in this instance's own record
	after      int64 // the limiter's time before which it must not be sent; 0: at once
}

// holdKeeper has the holds of all rules of a limiter, and the settlements that wait for Redis.
type holdKeeper struct {
	once   sync.Once
	lastID atomic.Uint64

	open, units                    atomic.Int64 // of this process
	settled, late, reclaimed, lost atomic.Int64

	sending  sync.Mutex // held while what waits is sent
	mu       sync.Mutex // guards the fields below
	waiting  []settlement
	underWay int           // were taken out of waiting, and may come back
	wake     chan struct{} // nil until something waits
	ended    bool
}

func (k *holdKeeper) opened(units int64) {
	k.open.Add(1)
	k.units.Add(units)
}

func (k *holdKeeper) closed(units int64) {
	k.open.Add(-1)
	k.units.Add(-units)
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

func (k *holdKeeper) stats() HoldStats {
	k.mu.Lock()
	waiting := len(k.waiting) + k.underWay
	k.mu.Unlock()
	return HoldStats{
		Open: k.open.Load(), Units: k.units.Load(), Unsettled: int64(waiting),
		Settled: k.settled.Load(), Late: k.late.Load(), Reclaimed: k.reclaimed.Load(), Lost: k.lost.Load(),
	}
}

// cancelling is the settlement of a hold that nobody has.
func (r *Rule) cancelling(key *callKey, units int64) settlement {
	return settlement{rule: r, key: key.kept(), held: units, granted: r.limiter.now()}
}

// settle makes a settlement now, or if that cannot be, later.
func (l *Limiter) settle(ctx context.Context, s settlement) {
	if !s.recorded && s.used < s.held {
		l.record(&s) // before Redis is told: this instance's own record may say less than Redis, never more
	}
	if l.send(ctx, &s) {
		return
	}
	l.record(&s)
	l.holds.put(l, s)
}

// record makes this instance's own record say what was used.
func (l *Limiter) record(s *settlement) {
	if s.recorded {
		return
	}
	s.recorded = true
	q, shard := s.rule.inOutageOf(&s.key, s.used, lua.Settle), l.shardOf(&s.key)
	switch {
	case s.used > s.held:
		shard.Used(&q, s.used-s.held, !s.local) // what is local Redis is told with all that was granted without it
	case s.used < s.held && l.now()-s.granted < int64(s.rule.limit.Window()):
		shard.Returned(&q, s.held-s.used, s.local)
	}
}

// settleLocally makes the settlement of a hold that Redis does not know of.
func (l *Limiter) settleLocally(s *settlement) {
	l.record(s)
	l.holds.settled.Add(1)
	s.rule.unitsCameBack(&s.key)
}

// send asks Redis to make a settlement. It reports false if it is to be sent again.
func (l *Limiter) send(ctx context.Context, s *settlement) bool {
	shard := l.shardOf(&s.key)
	if !shard.Breaker.Closed() {
		return false
	}
	reply, err := shard.Decide(ctx, remote.Entry{
		Key: string(s.key.name), Rule: s.rule.encoded, Operation: lua.Settle, Cost: s.used,
		Hold: &remote.Hold{ID: s.key.hold.terms.ID},
	})
	switch {
	case errors.Is(err, remote.ErrUnreadable):
		l.outage(err) // says so
		l.holds.lost.Add(1)
		l.record(s)
		return true
	case err != nil:
		s.sent = s.sent || !errors.Is(err, breaker.ErrOpen) && remote.MayHaveRun(err)
		return false
	}
	l.holds.settled.Add(1)
	if reply.Status != remote.Allowed && !s.sent {
		l.unknownHold(s)
	} else if reply.Fitted > 1 {
		l.holds.reclaimed.Add(1)
	}
	l.record(s)
	s.rule.unitsCameBack(&s.key)
	return true
}

// unknownHold is for a hold that Redis does not know of although nobody can have settled it: the
// key was reset, or Redis has lost its memory, or it was given back long ago. What was used
// beyond what may still be charged is charged like units that were granted without Redis: once.
func (l *Limiter) unknownHold(s *settlement) {
	if !s.unknown {
		l.holds.lost.Add(1)
	}
	more := s.used - s.held
	if s.rule.config.unsettled == GiveBack && l.now() > s.ends {
		more = s.used
	}
	if more <= 0 {
		return
	}
	q := s.rule.inOutageOf(&s.key, more, lua.Settle)
	l.shardOf(&s.key).Used(&q, more, false)
	if s.used > s.held {
		s.recorded = true // with it
	}
}

// unitsCameBack lets others have what may be free now.
func (r *Rule) unitsCameBack(key *callKey) {
	r.forgetDenial(key.hash)
	r.limiter.lines.release(r.name, key.inRedis())
}

// put has a settlement made in the background.
func (k *holdKeeper) put(l *Limiter, s settlement) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended || len(k.waiting)+k.underWay >= mostSettlements {
		k.lost.Add(1)
		return
	}
	if k.wake == nil {
		k.wake = make(chan struct{}, 1)
		l.background.Go(l.keepSettling)
	}
	k.waiting = append(k.waiting, s)
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
		k.lost.Add(int64(n))
		l.log.Warn("settlements", "holds could not be settled before the limiter was closed; what was held stays charged", "settlements", n)
	}
}
