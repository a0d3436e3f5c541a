package outage

import (
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local/ledger"
)

// beatsToKnow is the number of regular heartbeats, a second apart, after which an instance knows how many
// instances have started together with it.
const beatsToKnow = 2

// fleetSize returns how many instances share this shard: as reported by its master, otherwise as reported
// by another master, and otherwise as assumed. If a whole fleet starts within a second and Redis is lost
// in that second, an instance knows only the instances that started before it. So until beatsToKnow
// heartbeats were answered, the size is at least the one that the program has stated.
func (s *Shard) fleetSize() int {
	size := s.fleet.Size()
	if !s.fleet.Heard() {
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

// OutageOf returns the present parameters of the shares of the rule's limit. If the rule has stopped settling,
// Redis decides alone, and the incident does not concern it.
func (s *Shard) OutageOf(r *Rule) ledger.Outage {
	e, window := s.incident.Load(), r.Limit.Window()
	if e == nil || s.settles(e, r) {
		return s.outageIn(e, window)
	}
	o := s.outageIn(nil, window)
	if !e.allCharged {
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
