package outage

import (
	"sync/atomic"
	"time"
)

// times are when things last happened to a shard, for people: in Unix nanoseconds.
type times struct {
	changed, failed atomic.Int64
}

// Since is since when the shard has been in its state.
func (s *Shard) Since() time.Time { return time.Unix(0, s.times.changed.Load()) }

// LastFailure is when Redis could not be asked last, and why; nil if it always could.
func (s *Shard) LastFailure() (at time.Time, reason error) {
	if reason = s.reason(); reason == nil {
		return time.Time{}, nil
	}
	return time.Unix(0, s.times.failed.Load()), reason
}

// Address is where the shard's Redis is; "" if that is not known.
func (s *Shard) Address() string {
	if w := s.where.Load(); w != nil {
		return w.addr
	}
	return s.all.Config.Address
}
