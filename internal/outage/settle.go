package outage

import (
	"maps"
	"slices"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// Settling reports whether decisions of the rule also need this instance's agreement; see
// [Shard.Reserve].
func (s *Shard) Settling(r *Rule) bool { return r.Policy != Allow && s.isUncounted(r) }

// isUncounted reports whether Redis may not know of all grants of the rule.
func (s *Shard) isUncounted(r *Rule) bool {
	e := s.incident.Load()
	return e != nil && s.settles(e, r)
}

// settles reports whether the rule is still settling in an incident. Under fixed windows, nothing counts that was
// granted in an earlier window. So a rule per day does not settle for 24 hours after a loss of data, but at most until
// the day is over. It settles for at least as long as instances that are not back count as members. If the clock has
// stepped back with the loss, a window may begin in which units were granted by the clock from before. Redis does not
// know of them, so the rule settles until that window is over, too.
func (s *Shard) settles(e *incident, r *Rule) bool {
	now := s.all.Now()
	if !e.settles(r.Name, r.Limit.Window(), now) {
		return false
	}
	if e.back == 0 || now-e.back < int64(FleetTTL) || !r.Algorithm.Same(limit.FixedWindow()) {
		return true
	}
	clock, _ := s.memory.clock(now)
	back := clock - (now-e.back)/1000
	return clock == 0 || r.windowStart(clock) <= max(back, e.clock)
}

// Reserved describes units that are reserved in this instance's share until Redis has answered.
type Reserved struct {
	Units int64 // reserved for the request
	Free  int64 // left in addition
	at    int64 // when they were reserved, on the limiter's clock
}

// Reserve asks this instance's share of the limit while Redis does not know of all grants. Both must
// agree (law 11). The share is asked first, because that takes no trip. If the share has no room, ok is
// false, and d is the denial. Otherwise the caller must call [Shard.Release] later.
func (s *Shard) Reserve(q *Request) (own Reserved, d limit.Decision, ok bool) {
	a := q.account()
	least, most := q.Cost, q.Cost
	switch q.Operation {
	case lua.TakeUpTo:
		least = 1
	case lua.Peek:
		most = 0
	}
	now := s.all.Now()
	g := s.all.Ledger.Reserve(&a, s.OutageOf(q.Rule), now, least, most)
	if g.Granted < min(least, most) || g.Free < least && q.Operation == lua.Peek {
		q.Rule.begin(&d, s.TierSettling())
		granted(&d, g)
		d.Remaining = min(d.Remaining, q.Rule.Capacity)
		return Reserved{}, d, false
	}
	return Reserved{g.Granted, g.Free, now}, d, true
}

// Release gives back the reserved units once Redis has answered or failed. By then Redis's grants have
// been recorded; grants without Redis are recorded afterwards.
func (s *Shard) Release(q *Request, own Reserved) {
	now := s.all.Now()
	if now-own.at >= int64(q.Rule.Limit.Window()) {
		return // they have left the window; Undo would take back later grants
	}
	a := q.account()
	s.all.Ledger.Undo(&a, now, own.Units, false)
}

// TierSettling returns the tier of denials by this instance's share.
func (s *Shard) TierSettling() limit.Tier {
	if e := s.incident.Load(); e != nil && e.overload {
		return limit.TierOverload
	}
	return limit.TierFallback
}

// decidesSince returns the time since when Redis has decided, and known what it granted, or 0.
func (s *Shard) decidesSince() int64 {
	if e := s.incident.Load(); e != nil {
		return e.decides
	}
	return 0
}

// settleAtLeast is the shortest time for which an incident lasts after Redis is back. Other instances
// still count as members from before the outage, so they must have had time to send a heartbeat.
const settleAtLeast = time.Second

// settle ends an incident if it is over. heard is the reply to a heartbeat that reported that this
// instance has charged all its grants. The incident is over if heard shows no other instance with
// uncharged grants, and if all instances from before the cut are back or the time for which they count as
// members has passed. Rules for which some instance has lost records continue to settle. In any other
// case, the incident ends after the longest window.
func (s *Shard) settle(heard remote.Heard) {
	e := s.incident.Load()
	if e == nil {
		return
	}
	now, lost := s.all.Now(), make(map[string]int64)
	all := heard.Unsettled == 0 && (heard.Size >= s.fleetBefore(e) || now-e.back >= int64(FleetTTL))
	settled := e.back != 0 && now-e.back >= int64(settleAtLeast) && all && !s.mayLackGrants(e)
	for _, loss := range heard.Lost {
		lost[loss.Rule] = now + int64(loss.For)
	}
	s.update(func(e *incident) { e.lostRecords = lost }) // before the end
	switch {
	case settled && len(lost) == 0, s.isOver(e):
		s.end(e.back, true)
	case settled && s.end(e.back, false):
		s.warn("lost records", "more keys got grants without Redis than LedgerKeys has room for; rules that lost records keep settling for their window",
			"rules", slices.Sorted(maps.Keys(lost)))
	}
}

// owesNow is Owes, and also records it if nothing is owed.
func (s *Shard) owesNow() bool {
	before := s.incident.Load()
	owes := s.Owes()
	if !owes && before != nil && before.back != 0 {
		s.hasRepaid(before.back)
	}
	return owes
}

// hasRepaid records that this instance owed nothing. back is the time since which Redis had been back. If
// Redis has been lost again in the meantime, hasRepaid does nothing, because this instance may owe what
// it has granted since.
func (s *Shard) hasRepaid(back int64) {
	s.update(func(e *incident) { e.repaid = e.repaid || e.back == back })
}

// mayLackGrants reports whether Redis has lost grants within the longest window. Other instances charge a key
// again only when it is used, so some of these grants are never charged again.
func (s *Shard) mayLackGrants(e *incident) bool {
	at, longest := e.forgotten, int64(s.all.Windows.Longest())
	return at != 0 && (s.all.Now()-at < longest || longest == 0) // if longest is 0, rules may still be made
}

// isUnsettled reports whether the other instances must wait until this one, which owes units, has charged
// them. After the longest window they need not wait, because all units that this instance still owes were
// granted since Redis is back.
func (s *Shard) isUnsettled() bool {
	e := s.incident.Load()
	return e != nil && (!e.repaid || s.mayLackGrants(e)) && !s.isOver(e)
}

// awaitsMembers reports whether instances from before the cut may still come back with grants that Redis does not know
// of. An instance that starts meanwhile cannot know that any are missing. So until all are back, this one also reports
// that it has not settled, and the new one settles (law 11).
func (s *Shard) awaitsMembers() bool {
	e := s.openIncident()
	return e != nil && e.back != 0 && s.all.Now()-e.back < int64(FleetTTL) && s.fleet.Size() < s.fleetBefore(e) && !s.isOver(e)
}

// isOver reports whether everything that was granted before Redis was back has left the windows of all
// rules.
func (s *Shard) isOver(e *incident) bool {
	longest := s.all.Windows.Longest()
	return longest > 0 && e.isOver(longest, s.all.Now()) // if longest is 0, rules may still be made
}

// settleAnew makes the shard settle from now on, because there is more to charge than before. Either
// other instances must charge it, whose fleet this instance has just joined, or this instance itself.
// Otherwise Redis would grant these units again to this instance's callers.
func (s *Shard) settleAnew() { s.settleFromNow(func(*incident, bool) {}) }

// settlesSoon reports whether an incident may end before a window has passed, if all instances report
// that they have charged their grants.
func (s *Shard) settlesSoon() bool {
	e := s.openIncident()
	return e != nil && !s.mayLackGrants(e)
}

// lostRules returns the rules for which this instance has lost records.
func (s *Shard) lostRules() (lost []remote.Loss) {
	now := s.all.Now()
	for _, loss := range s.all.Ledger.Lost(s.has(), now) {
		lost = append(lost, remote.Loss{Rule: loss.Rule, For: time.Duration(loss.Until - now)})
	}
	return lost
}
