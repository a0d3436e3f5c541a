package outage

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/breaker"
	"github.com/tierlimit/tierlimit/internal/wake"
	"github.com/tierlimit/tierlimit/local/ledger"
	"github.com/tierlimit/tierlimit/remote"
)

// Shard is the state of the Redis server that has a key: whether it can be reached, how many
// instances share it, and whether it knows of all grants. A single node has one shard, a Cluster
// one for each master, so the loss of a master does not affect the others' keys.
//
// It is safe for concurrent use.
type Shard struct {
	Decider                  // asks the master
	Breaker *breaker.Breaker // closed while Redis decides

	all     *Shards
	index   int
	fleet   Membership
	charger charger
	memory  memory
	misses  misses

	suspicions wake.Signal  // that Redis has lost its data
	told       State        // last state reported by tellChanges, which alone uses this and the next two
	toldAt     time.Time    // when that was
	unwell     time.Time    // since when it is not healthy, as reported
	changedAt  atomic.Int64 // when the state changed last, in Unix nanoseconds

	where atomic.Pointer[where]

	silence atomic.Pointer[silence] // nil while Redis answers
	failure atomic.Pointer[failure] // the last one; nil: none so far
	// unheard is the number of heartbeats since the last answered one. The breaker stays closed if trips
	// succeed nevertheless: heartbeats need commands and keys of their own, to which the Redis user may
	// have lost the right.
	unheard atomic.Int32
	// beats is the number of answered heartbeats after those of the start, up to beatsToKnow.
	beats atomic.Int32

	// incident is an outage or the settling after it; nil while Redis decides alone. It is changed
	// only under mu.
	incident atomic.Pointer[incident]
	mu       sync.Mutex
}

// newShard makes a shard. assumed is the fleet's size until Redis reports it.
func (l *Shards) newShard(index, assumed int) *Shard {
	s := &Shard{
		all:        l,
		index:      index,
		charger:    charger{wake: wake.NewSignal()},
		suspicions: wake.NewSignal(),
		toldAt:     time.Now(),
	}
	s.changedAt.Store(s.toldAt.UnixNano())
	s.where.Store(&where{})
	s.Breaker = breaker.New(ProbeEvery, s.breakerChanged)
	s.Decider, s.fleet = l.Connect(s, assumed)
	return s
}

// Index returns the shard's number, which does not change.
func (s *Shard) Index() int { return s.index }

// run starts the shard's background work.
func (s *Shard) run() {
	s.all.Go(s.keep)
	s.all.Go(func() { s.charger.wake.Run(s.all.Context, s.chargeSome) })
}

// incident is an outage, from the cut until Redis alone decides again. Shares of limits are fixed
// for as long as it lasts (law 11), even if Redis is lost again before it is over.
type incident struct {
	number  uint32
	fleet   int  // instances before the cut; 0 if the process began without Redis
	newborn bool // it did

	// load says that Redis answers all the time, but is too slow for many decisions.
	load atomic.Bool
	// Times on the limiter's clock: of the cut; and since when Redis is back, 0 if it is not.
	cut, back atomic.Int64
	// forgotten is when it was noticed, on the limiter's clock, that Redis has lost grants; 0: it has not. See
	// Shard.forgets.
	forgotten atomic.Int64
	// repaid says that this instance has charged all that it granted until Redis was back. What it
	// has granted since, because single decisions missed Redis, is charged like that of a healthy
	// instance: nobody waits for it. In a large fleet there is always an instance with such a debt.
	repaid atomic.Bool
	// charged says that all instances have charged the grants that they have records of. From then
	// on only rules of which records were lost settle.
	charged atomic.Bool
	lost    atomic.Pointer[losses] // nil: none was reported
}

// lost begins an incident. Like back it is called under the breaker's lock.
func (s *Shard) lost(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.uncharged(); e != nil { // it continues
		e.load.Store(false)
		e.repaid.Store(false)
		e.back.Store(0)
		e.cut.Store(s.since(now))
		return
	}
	s.begin(now)
}

// uncharged returns the incident if not all instances have charged their grants, else nil. If they
// have, a new loss begins a new incident, because Redis has decided alone since.
func (s *Shard) uncharged() *incident {
	if e := s.incident.Load(); e != nil && !e.charged.Load() {
		return e
	}
	return nil
}

// begin begins an incident. Its number is the limiter's, so that a key finds none that its
// share was fixed in if it comes from another shard.
func (s *Shard) begin(now int64) *incident {
	e := &incident{newborn: !s.fleet.Heard()}
	if !e.newborn {
		e.fleet = s.fleetSize()
	}
	if silence := s.silence.Load(); silence != nil {
		e.number = silence.number
	} else {
		e.number = s.all.incidents.Add(1)
	}
	e.cut.Store(s.since(now))
	s.incident.Store(e)
	return e
}

// since returns when a loss that is noticed now began.
func (s *Shard) since(now int64) int64 {
	if silence := s.silence.Load(); silence != nil {
		return min(now, silence.began)
	}
	return now
}

// settleFromNow makes the shard settle from now on, or if Redis is lost, as soon as it is back: in a new incident, or in the
// one that has not ended. The lock is held.
func (s *Shard) settleFromNow() *incident {
	now, e := s.all.Now(), s.uncharged()
	switch {
	case e == nil:
		e = s.begin(now)
		e.isBack(now)
		s.changed()
	case e.back.Load() != 0:
		e.repaid.Store(false)
		e.isBack(now)
	}
	return e
}

// back begins the settling.
func (s *Shard) back(now int64) {
	if e := s.incident.Load(); e != nil {
		e.isBack(now)
	}
}

// isBack records that Redis is back since now.
func (e *incident) isBack(now int64) { e.back.Store(max(1, now)) }

// mayEnd reports whether Redis has been back all the time since then, and nothing has put off the end of the settling. The lock
// is held.
func (s *Shard) mayEnd(e *incident, back int64) bool {
	return back != 0 && e.back.Load() == back && s.Breaker.Closed() && s.incident.Load() == e
}

// end ends an incident if it may end.
func (s *Shard) end(e *incident, back int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mayEnd(e, back) {
		s.incident.Store(nil)
		s.changed()
	}
}

// endBut ends an incident except for rules of which records were lost. It reports whether that is a
// change.
func (s *Shard) endBut(e *incident, back int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mayEnd(e, back) && !e.charged.Swap(true)
}

func (e *incident) isOver(window time.Duration, now int64) bool {
	back := e.back.Load()
	return back != 0 && now-back >= int64(window)
}

// beatsToKnow is how many regular heartbeats, a second apart, an instance must have had to know how
// many have started with it.
const beatsToKnow = 2

// fleetSize returns how many instances share this shard: as reported by its master, or else by
// another master, or else as assumed. If a whole fleet starts within a second, and Redis is lost in it,
// each instance has heard of those only that were before it; so what the program has said is the least
// until then.
func (s *Shard) fleetSize() int {
	size := s.all.FleetSize()
	if s.fleet.Heard() {
		size = s.fleet.Size()
	}
	if s.beats.Load() < beatsToKnow {
		return max(size, s.all.Largest)
	}
	return size
}

// fleetBefore returns the number of instances before the cut that may still come back.
func (s *Shard) fleetBefore(e *incident) int {
	if e.newborn && s.fleet.Heard() {
		return s.all.Assumed
	}
	return e.fleet
}

// Outage returns the parameters of shares at present.
func (s *Shard) Outage() ledger.Outage { return s.outageIn(s.incident.Load()) }

// outageOf returns the parameters of shares of a rule's limit at present.
func (s *Shard) outageOf(r *Rule) ledger.Outage {
	e := s.incident.Load()
	if e != nil && e.charged.Load() && !e.settles(r.Name, r.Limit.Window(), s.all.Now()) {
		e = nil
	}
	return s.outageIn(e)
}

func (s *Shard) outageIn(e *incident) ledger.Outage {
	o, silence := ledger.Outage{Fleet: s.fleetSize()}, s.silence.Load()
	switch {
	case e != nil:
		o.Number, o.Cut, o.Newborn = e.number, e.cut.Load(), e.newborn
		o.Fleet = max(o.Fleet, s.fleetBefore(e)) // who has not been heard of since shares the limit all the same
	case silence != nil:
		o.Number, o.Cut, o.Newborn = silence.number, silence.began, !s.fleet.Heard()
	default:
		return o
	}
	o.Born, o.ColdStart = s.all.Born, s.all.ColdStart
	return o
}

// State is the state of a shard.
func (s *Shard) State() State {
	switch {
	case !s.Breaker.Closed():
		return Outage
	case s.incident.Load() != nil:
		return Settling
	}
	return Healthy
}

// leave ends the membership in the fleet.
func (s *Shard) leave() error {
	if !s.inUse() || !s.fleet.Heard() || !s.Breaker.Closed() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.all.Deadline)
	defer cancel()
	if err := s.fleet.Leave(ctx); !remote.IsMoving(err) {
		return err
	}
	return nil // it expires by itself
}
