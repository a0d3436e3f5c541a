package tiered

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/inspect"
)

// times are when things last happened to a shard, for people: in Unix nanoseconds.
type times struct {
	changed, failed atomic.Int64
}

// address is where a shard's Redis is; "" if that is not known.
func (s *shard) address() string {
	if w := s.where.Load(); w != nil {
		return w.addr
	}
	if node, ok := s.limiter.client.(*redis.Client); ok {
		return node.Options().Addr
	}
	return ""
}

func (i inside) Health() inspect.Health {
	l := i.l
	var h inspect.Health
	for _, s := range l.shards() {
		m := inspect.Master{Address: s.address(), State: s.state().String(), Since: time.Unix(0, s.times.changed.Load())}
		if err := s.reason(); err != nil {
			m.LastError, m.LastErrorAt = err.Error(), time.Unix(0, s.times.failed.Load())
		}
		h.Masters = append(h.Masters, m)
	}
	units, keys := l.ledger.Waiting()
	h.WaitingUnits, h.WaitingKeys = units, int64(keys)
	trips := l.metrics.trips
	h.TripBounds = slices.Clone(trips.bounds)
	for n := range len(trips.bounds) + 1 {
		h.TripCounts = append(h.TripCounts, trips.counts[n].Load())
	}
	return h
}
