package outage

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/breaker"
	"github.com/tierlimit/tierlimit/internal/wake"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local/ledger"
	"github.com/tierlimit/tierlimit/remote"
)

// Shard is the state of the Redis server that has a key: whether it can be reached, how many instances
// share it, and whether it knows of all grants. A single node has one shard. A Cluster has one shard for
// each master, so the loss of a master does not affect the keys of the others.
//
// A Shard is safe for concurrent use.
type Shard struct {
	Decider                  // asks the master
	Breaker *breaker.Breaker // closed while Redis decides

	all     *Shards
	index   int
	fleet   Membership
	charger charger
	memory  memory
	misses  misses

	suspicions     wake.Signal  // signal that Redis may have lost its data
	reported       State        // last state reported by reportChanges, which alone uses this and the next two
	reportedAt     time.Time    // when that state was reported
	unhealthySince time.Time    // since when the reported state is not healthy
	changedAt      atomic.Int64 // when the state last changed, in Unix nanoseconds

	location atomic.Pointer[location]

	silence atomic.Pointer[silence] // nil while Redis answers
	failure atomic.Pointer[failure] // the last failure; nil: none so far
	// failedHeartbeats is the number of heartbeats since the last answered one. The breaker stays closed if trips
	// succeed nevertheless: heartbeats need their own commands and keys, and the Redis user may have lost
	// the right to those.
	failedHeartbeats atomic.Int32
	// beats is the number of answered heartbeats after those of the start, counted up to beatsToKnow.
	beats atomic.Int32

	// incident is an outage or the settling after it; nil while Redis decides alone. It is replaced only
	// under mu.
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
		reportedAt: time.Now(),
	}
	s.changedAt.Store(s.reportedAt.UnixNano())
	s.location.Store(&location{})
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

// incident is an outage, from the cut until Redis alone decides again. Shares of limits are fixed for as
// long as the incident lasts (law 11), even if Redis is lost again before it is over. But they are fixed anew
// for rules that had stopped settling by then, because their windows had passed; see renew. An incident in
// force is immutable: what happens in it replaces it by a changed copy.
type incident struct {
	number   uint32
	renewed  []renewal // by time; the later one of two is that of shorter windows, or it replaces the other
	fleet    int       // number of instances before the last cut; 0 if newborn and cut off once
	newborn  bool      // the process began without Redis
	overload bool      // Redis keeps answering, but is too slow for many decisions

	// Times on the limiter's clock: cut is the time of the cut; back is when Redis came back, or 0 if it
	// is not back; forgotten is when it was noticed that Redis has lost grants, or 0 if it has lost none.
	cut, back, forgotten int64
	// clock is the time that it would have been by Redis's clock from before the last loss of data when that was
	// noticed, in µs. The server that has taken over may have a clock that is behind. 0: no data were lost.
	clock int64
	// repaid says that this instance has charged everything that it granted until Redis was back. Units
	// that it has granted since then, because single decisions missed Redis, are charged like those of a
	// healthy instance: no other instance waits for them. The reason is that in a large fleet there is
	// always an instance with such a debt.
	repaid bool
	// charged says that all instances have charged the grants that they have records of. From then on,
	// only rules whose records were lost settle.
	charged bool
	// lost has the rules for which some instance has lost records of grants without Redis, and the time
	// until which each loss matters, on the limiter's clock.
	lost map[string]int64
}

// renewal is the number under which shares are fixed anew for rules whose window is at most upTo.
type renewal struct {
	upTo   int64
	number uint32
}

// renewalsKept bounds the renewals of an incident. If there are more, those of the longest windows are
// forgotten.
const renewalsKept = 16

// renew is called before an incident that Redis is back from begins again. It makes the shares of rules that
// have stopped settling be fixed anew. An incident lasts for days if Redis has lost its data and one rule has a
// long window. Without renew, the shares of all other rules would stay as they were when it began, wherever
// the traffic has moved since, and however many instances there are by now.
func (s *Shard) renew(e *incident, now int64) {
	alone := now - e.back // how long Redis has been back
	fleet := s.fleetSize()
	if alone < int64(FleetTTL) {
		fleet = max(fleet, e.fleet) // some may not have come back from the cut before
	}
	e.fleet = fleet
	if alone < int64(limit.MinWindow) {
		return // all rules are still settling
	}
	loss := s.loss(now)
	renewed := slices.DeleteFunc(slices.Clone(e.renewed), func(r renewal) bool { return r.upTo <= alone })
	renewed = append(renewed, renewal{alone, loss.number})
	e.renewed = renewed[max(0, len(renewed)-renewalsKept):]
	e.cut = loss.began
}

// numberFor returns the number under which the shares of rules of a window are fixed.
func (e *incident) numberFor(window time.Duration) uint32 {
	for _, r := range slices.Backward(e.renewed) {
		if int64(window) <= r.upTo {
			return r.number
		}
	}
	return e.number
}

// lost begins an incident. It is called under the breaker's lock.
func (s *Shard) lost(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, begun := s.again(now)
	if !begun {
		e.cut = s.loss(now).began
	}
	e.overload, e.repaid, e.back = false, false, 0
	s.incident.Store(&e)
}

// again returns the incident that has not ended, ready to begin again, or a new one. It does not put the
// incident in force. begun reports whether the incident is a new one. mu must be held.
func (s *Shard) again(now int64) (e incident, begun bool) {
	known := s.uncharged()
	if known == nil {
		return s.newIncident(now), true
	}
	e = *known
	if e.back != 0 {
		s.renew(&e, now)
	}
	return e, false
}

// uncharged returns the incident if not all instances have charged their grants, and otherwise nil. If
// they have charged them, a new loss begins a new incident, because Redis has decided alone since.
func (s *Shard) uncharged() *incident {
	if e := s.incident.Load(); e != nil && !e.charged {
		return e
	}
	return nil
}

// newIncident returns a new incident. Its number is unique in the limiter. So a key that comes from another
// shard does not find the number of an incident in which its share was fixed.
func (s *Shard) newIncident(now int64) incident {
	loss := s.loss(now)
	e := incident{number: loss.number, newborn: !s.fleet.Heard(), cut: loss.began}
	if !e.newborn {
		e.fleet = s.fleetSize()
	}
	return e
}

// loss returns the beginning of a loss that is noticed now. It is that of the silence, in which shares may have
// been fixed already.
func (s *Shard) loss(now int64) silence {
	if known := s.silence.Load(); known != nil {
		return silence{known.number, min(now, known.began)}
	}
	return silence{s.all.incidents.Add(1), now}
}

// settleFromNow makes the shard settle from now on or, if Redis is lost, as soon as it is back. The shard
// settles in the incident that has not ended, or in a new one. change makes further changes to it. begun
// reports whether the incident is a new one.
func (s *Shard) settleFromNow(change func(e *incident, begun bool)) (begun bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.all.Now()
	e, begun := s.again(now)
	if begun || e.back != 0 {
		e.repaid = false
		e.isBack(now)
	}
	change(&e, begun)
	s.incident.Store(&e)
	if begun {
		s.changed()
	}
	return begun
}

// update makes changes to the incident, if there is one.
func (s *Shard) update(change func(e *incident)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.incident.Load(); known != nil {
		e := *known
		change(&e)
		s.incident.Store(&e)
	}
}

// isBack records that Redis is back as of now.
func (e *incident) isBack(now int64) { e.back = max(1, now) }

// end ends the incident, either wholly or except for rules whose records were lost, and reports whether
// that is a change. Redis must have been back without interruption since the given time, and nothing must
// have postponed the end of the settling. Otherwise end does nothing.
func (s *Shard) end(back int64, wholly bool) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.incident.Load()
	if back == 0 || known == nil || known.back != back || !s.Breaker.Closed() {
		return false
	}
	if wholly {
		s.incident.Store(nil)
		s.changed()
		return true
	}
	e := *known
	e.charged = true
	s.incident.Store(&e)
	return !known.charged
}

func (e *incident) isOver(window time.Duration, now int64) bool {
	return e.back != 0 && now-e.back >= int64(window)
}

// beatsToKnow is the number of regular heartbeats, a second apart, after which an instance knows how many
// instances have started together with it.
const beatsToKnow = 2

// fleetSize returns how many instances share this shard: as reported by its master, otherwise as reported
// by another master, and otherwise as assumed. If a whole fleet starts within a second and Redis is lost
// in that second, an instance knows only the instances that started before it. So until beatsToKnow
// heartbeats were answered, the size is at least the one that the program has stated.
func (s *Shard) fleetSize() int {
	var size int
	if s.fleet.Heard() {
		size = s.fleet.Size()
	} else {
		size = s.all.FleetSize()
	}
	if s.beats.Load() < beatsToKnow {
		return max(size, s.all.Largest)
	}
	return size
}

// fleetBefore returns the number of instances before the cut that may still come back.
func (s *Shard) fleetBefore(e *incident) int {
	if e.newborn && s.fleet.Heard() {
		return max(s.all.Assumed, e.fleet)
	}
	return e.fleet
}

// Outage returns the present parameters of shares of limits with a long window.
func (s *Shard) Outage() ledger.Outage { return s.outageIn(s.incident.Load(), limit.MaxWindow) }

// OutageOf returns the present parameters of the shares of the named rule's limit, which has the given
// window. If the rule has stopped settling, Redis decides alone, and the incident does not concern it.
func (s *Shard) OutageOf(rule string, window time.Duration) ledger.Outage {
	e := s.incident.Load()
	return s.outageWhile(e, e == nil || e.settles(rule, window, s.all.Now()), window)
}

func (s *Shard) outageOf(r *Rule) ledger.Outage {
	e := s.incident.Load()
	return s.outageWhile(e, e == nil || s.settles(e, r), r.Limit.Window())
}

// outageWhile returns the parameters for a rule that an incident concerns, or concerns no more.
func (s *Shard) outageWhile(e *incident, concerns bool, window time.Duration) ledger.Outage {
	if concerns {
		return s.outageIn(e, window)
	}
	o := s.outageIn(nil, window)
	if !e.charged {
		o.Fleet = max(o.Fleet, s.fleetBefore(e))
	}
	return o
}

func (s *Shard) outageIn(e *incident, window time.Duration) ledger.Outage {
	o, silence, newborn := ledger.Outage{Fleet: s.fleetSize()}, s.silence.Load(), false
	switch {
	case e != nil:
		o.Number, o.Cut, newborn = e.numberFor(window), e.cut, e.newborn
		o.Fleet = max(o.Fleet, s.fleetBefore(e)) // instances that have not been heard of since still share the limit
	case silence != nil:
		o.Number, o.Cut, newborn = silence.number, silence.began, !s.fleet.Heard()
	}
	if newborn {
		o.ColdStart = &s.all.ColdStart
	}
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
	return nil // the membership expires by itself
}
