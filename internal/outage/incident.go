package outage

import (
	"slices"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
)

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
	// decides is the time since when Redis has decided, and known what it granted: when the last outage ended, or the last
	// loss of data was noticed. 0: throughout the incident.
	decides int64
	// clock is the time that it would have been by Redis's clock from before the last loss of data when that was
	// noticed, in µs. The server that has taken over may have a clock that is behind. 0: no data were lost.
	clock int64
	// repaid says that this instance has charged everything that it granted until Redis was back. Units
	// that it has granted since then, because single decisions missed Redis, are charged like those of a
	// healthy instance: no other instance waits for them. The reason is that in a large fleet there is
	// always an instance with such a debt.
	repaid bool
	// allCharged says that all instances have charged the grants that they have records of. From then on,
	// only rules whose records were lost settle.
	allCharged bool
	// lostRecords has the rules for which some instance has lost records of grants without Redis, and the time
	// until which each loss matters, on the limiter's clock.
	lostRecords map[string]int64
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
	since := s.silenceAt(now)
	renewed := slices.DeleteFunc(slices.Clone(e.renewed), func(r renewal) bool { return r.upTo <= alone })
	renewed = append(renewed, renewal{alone, since.number})
	e.renewed = renewed[max(0, len(renewed)-renewalsKept):]
	e.cut = since.began
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

// beginOutage begins an incident, or continues the one that has not ended. It is called under the breaker's lock.
func (s *Shard) beginOutage(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, isNew := s.nextIncident(now)
	if !isNew {
		e.cut = s.silenceAt(now).began
	}
	e.overload, e.repaid, e.back = false, false, 0
	s.incident.Store(&e)
}

// nextIncident returns the incident that has not ended, ready to continue from now on, or a new one. It does not
// put the incident in force. mu must be held.
func (s *Shard) nextIncident(now int64) (e incident, isNew bool) {
	known := s.openIncident()
	if known == nil {
		return s.newIncident(now), true
	}
	e = *known
	if e.back != 0 {
		s.renew(&e, now)
	}
	return e, false
}

// openIncident returns the incident if not all instances have charged their grants, and otherwise nil. If
// they have charged them, a new outage begins a new incident, because Redis has decided alone since.
func (s *Shard) openIncident() *incident {
	if e := s.incident.Load(); e != nil && !e.allCharged {
		return e
	}
	return nil
}

// newIncident returns a new incident. Its number is unique in the limiter. So a key that comes from another
// shard does not find the number of an incident in which its share was fixed.
func (s *Shard) newIncident(now int64) incident {
	since := s.silenceAt(now)
	e := incident{number: since.number, newborn: !s.fleet.Heard(), cut: since.began}
	if !e.newborn {
		e.fleet = s.fleetSize()
	}
	return e
}

// silenceAt returns the silence in which Redis is found lost now. If there is none, it begins now. Shares may have
// been fixed in it already.
func (s *Shard) silenceAt(now int64) silence {
	if known := s.silence.Load(); known != nil {
		return silence{known.number, min(now, known.began)}
	}
	return silence{s.all.incidents.Add(1), now}
}

// settleFromNow makes the shard settle from now on or, if Redis is lost, as soon as it is back. The shard
// settles in the incident that has not ended, or in a new one. change makes further changes to it.
func (s *Shard) settleFromNow(change func(e *incident, isNew bool)) (isNew bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.all.Now()
	e, isNew := s.nextIncident(now)
	if isNew || e.back != 0 {
		e.repaid = false
		e.isBack(now)
	}
	change(&e, isNew)
	s.incident.Store(&e)
	if isNew {
		s.changed()
	}
	return isNew
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
	if known == nil || known.back != back || !s.Breaker.Closed() {
		return false
	}
	if wholly {
		s.incident.Store(nil)
		s.changed()
		return true
	}
	e := *known
	e.allCharged = true
	s.incident.Store(&e)
	return !known.allCharged
}

// isOver reports whether a window has passed since Redis came back.
func (e *incident) isOver(window time.Duration, now int64) bool {
	return e.back != 0 && now-e.back >= int64(window)
}

// settles reports whether a rule is still settling in an incident, once Redis is back. After a window,
// grants that Redis does not know no longer count. Once all instances have charged their grants, Redis
// lacks only grants whose records were lost.
func (e *incident) settles(rule string, window time.Duration, now int64) bool {
	if e.isOver(window, now) {
		return false
	}
	return !e.allCharged || e.lostRecords[rule] > now || e.lostRecords[remote.AnyRule] > now
}

// silence is the time since which Redis has not answered. It begins at the start of the first failed trip
// after which no trip was answered.
//
// If the silence becomes an outage, the outage began with the silence, and not three deadlines later,
// when the breaker opens. In between, units leave the window that nobody grants. If the outage began
// later, they would be missing in all shares for as long as the outage lasts. So shares are fixed as of
// the beginning of the silence (law 11), under the number that the incident will have.
type silence struct {
	number uint32
	began  int64
}

// TripEnded is called for each trip, before its callers get their answers.
func (s *Shard) TripEnded(took time.Duration, err error) {
	if err != nil {
		s.Failed(err)
	}
	known := s.silence.Load()
	switch {
	case err == nil && known != nil:
		s.silence.CompareAndSwap(known, nil)
	case err != nil && known == nil:
		s.silence.CompareAndSwap(nil, &silence{s.all.incidents.Add(1), s.all.Now() - int64(took)})
	}
}
