package tiered

import (
	"math/rand/v2"
	"time"

	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// holding has the parameters, beside the cost, of a decision that holds units.
type holding struct {
	terms remote.Hold
	// unknown: it was decided without Redis, which may hold the units all the same.
	unknown bool
	// granted is the Hold, if there comes to be one: in one piece with what names it in Redis.
	granted Hold
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
