package tiered

import (
	"slices"

	"github.com/tierlimit/tierlimit/internal/inspect"
)

func (i inside) Health() inspect.Health {
	l := i.l
	var h inspect.Health
	for _, s := range l.shards.InUse() {
		m := inspect.Master{Address: s.Address(), State: s.State().String(), Since: s.Since()}
		if at, err := s.LastFailure(); err != nil {
			m.LastError, m.LastErrorAt = err.Error(), at
		}
		h.Masters = append(h.Masters, m)
	}
	units, keys := l.ledger.Waiting()
	h.WaitingUnits, h.WaitingKeys = units, int64(keys)
	trips := l.metrics.trips.stats()
	h.TripBounds, h.TripCounts = slices.Clone(trips.Bounds), trips.Counts
	return h
}
