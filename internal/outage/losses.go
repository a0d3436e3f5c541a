package outage

import (
	"maps"
	"slices"
	"time"

	"github.com/tierlimit/tierlimit/remote"
)

// losses has the rules of which some instance has lost records of grants without Redis, and until
// when that matters, on the limiter's clock. It is immutable.
type losses map[string]int64

// of reports whether records of a rule are lost that still matter.
func (l losses) of(rule string, now int64) bool {
	return l[rule] > now || l[remote.AnyRule] > now
}

// any reports whether records of any rule are lost that still matter.
func (l losses) any(now int64) bool {
	for _, until := range l {
		if until > now {
			return true
		}
	}
	return false
}

func (l losses) rules() []string { return slices.Sorted(maps.Keys(l)) }

// lostRules returns the rules of which this instance has lost records.
func (s *Shard) lostRules() (lost []remote.Loss) {
	now := s.all.Now()
	for _, loss := range s.all.Ledger.Lost(s.has(), now) {
		lost = append(lost, remote.Loss{Rule: loss.Rule, For: time.Duration(loss.Until - now)})
	}
	return lost
}

// heardOf records the losses that a heartbeat reported at now.
func (e *incident) heardOf(lost []remote.Loss, now int64) {
	heard := make(losses, len(lost))
	for _, loss := range lost {
		heard[loss.Rule] = now + int64(loss.For)
	}
	e.lost.Store(&heard)
}

// losses returns the reported losses.
func (e *incident) losses() losses {
	if lost := e.lost.Load(); lost != nil {
		return *lost
	}
	return nil
}

// settles reports whether a rule is still settling after an incident, once Redis is back. After a
// window, grants that Redis does not know no longer count; and once all instances have charged
// their grants, Redis lacks only those whose records were lost.
func (e *incident) settles(rule string, window time.Duration, now int64) bool {
	if e == nil || e.isOver(window, now) {
		return false
	}
	return !e.charged.Load() || e.losses().of(rule, now)
}
