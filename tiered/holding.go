package tiered

import (
	"time"

	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// holding has the parameters, other than the cost, of a decision that holds units.
type holding struct {
	terms remote.Hold
	// unknown means that the outage policy decided, and that Redis may hold the units nevertheless.
	unknown bool
	// granted is the Hold that is returned if units are granted. It is part of the holding so that both
	// take one allocation.
	granted Hold
}

// newHolding returns a holding whose ID is, with near certainty, unique in the fleet.
func (l *Limiter) newHolding(life time.Duration) *holding {
	return &holding{terms: remote.Hold{ID: l.holds.lastID.Add(1), Life: life}}
}

// ask turns an entry that charges units into one that holds them, unless h is nil.
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

// decidedWithout records that the outage policy decided because asking Redis ended with err. Redis may
// hold the units nevertheless.
func (h *holding) decidedWithout(err error) {
	if h != nil {
		h.unknown = outage.MayBeCharged(err)
	}
}

func asksToHold(e *remote.Entry) bool { return e.Operation == lua.Hold || e.Operation == lua.HoldUpTo }
