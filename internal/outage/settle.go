package outage

import (
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// Settling reports whether decisions of the rule need this instance's agreement, with
// Redis there: see [Shard.Reserve].
func (s *Shard) Settling(r *Rule) bool { return r.Policy != Allow && s.isUncounted(r) }

// isUncounted reports whether Redis may not know of all grants of the rule.
func (s *Shard) isUncounted(r *Rule) bool { return s.Uncounted(r.Name, r.Limit.Window()) }

// Uncounted reports whether Redis may not know of all grants of a rule by that name, which count for
// as long as the window.
func (s *Shard) Uncounted(rule string, window time.Duration) bool {
	e := s.incident.Load()
	return e != nil && e.settles(rule, window, s.all.Now())
}

// Reserved is what this instance's share has room for, until Redis has said what it grants.
type Reserved struct {
	Units int64 // kept for the question
	Free  int64 // left beside them
}

// Reserve asks this instance's share of the limit while Redis does not know of all grants (law 11):
// both must agree. The share is asked first, since that takes no trip. If it has no room, ok is
// false, and d says so. Otherwise [Shard.Release] must follow.
func (s *Shard) Reserve(q *Question) (own Reserved, d limit.Decision, ok bool) {
	a := q.account()
	least, most := q.Cost, q.Cost
	switch q.Operation {
	case lua.TakeUpTo:
		least = 1
	case lua.Peek:
		most = 0
	}
	g := s.all.Ledger.Reserve(&a, s.Outage(), s.all.Now(), least, most)
	if g.Granted < min(least, most) || g.Free < least && q.Operation == lua.Peek {
		d := q.Rule.decision(s.TierSettling())
		d.ResetAfter = q.Rule.Limit.Window()
		granted(&d, g)
		return Reserved{}, d, false
	}
	return Reserved{g.Granted, g.Free}, limit.Decision{}, true
}

// Release gives back what was reserved, once Redis has answered or not: what it granted has been
// recorded by then, and what is granted without it will be.
func (s *Shard) Release(q *Question, own Reserved) {
	a := q.account()
	s.all.Ledger.Undo(&a, s.all.Now(), own.Units, false)
}

// TierSettling is who decides if this instance's share stands in the way.
func (s *Shard) TierSettling() limit.Tier {
	if e := s.incident.Load(); e != nil && e.load.Load() {
		return limit.TierOverload
	}
	return limit.TierFallback
}

// settleAtLeast is for how long an incident goes on after Redis is back: others who come
// back must have been heard of, though they still count as members from before.
const settleAtLeast = time.Second

// settle ends an incident if it is over: when a heartbeat that said this instance has charged
// all it granted found no other that has not, and all there were, or none more within
// the time for which they count as members; but for rules of which somebody has lost
// records. Or else after the longest window.
func (s *Shard) settle(heard remote.Heard) {
	e := s.incident.Load()
	if e == nil {
		return
	}
	back, now := e.back.Load(), s.all.Now()
	all := heard.Unsettled == 0 && (heard.Size >= s.fleetBefore(e) || now-back >= int64(FleetTTL))
	settled := back != 0 && now-back >= int64(settleAtLeast) && all && !e.forgotten.Load()
	e.heardOf(heard.Lost, now)
	lost := e.losses().any(now)
	switch {
	case settled && !lost, e.isOver(s.all.Longest(), now):
		if s.end(e) {
			s.changed(Healthy)
		}
	case settled && s.endBut(e):
		s.warn("lost records", "more keys were granted something without Redis than LedgerKeys has room for; rules of which records were lost go on settling for their window",
			"rules", e.losses().rules())
	}
}

// settlesSoon reports whether an incident may end before a window has passed, if the
// instances hear of each other.
func (s *Shard) settlesSoon() bool {
	e := s.uncharged()
	return e != nil && !e.forgotten.Load()
}
