package outage

import (
	"sync/atomic"
	"time"
)

// times has the times of a shard's last events, for display, in Unix nanoseconds.
type times struct {
	changed, failed atomic.Int64
}

// Since returns the time since which the shard has been in its state.
func (s *Shard) Since() time.Time { return time.Unix(0, s.times.changed.Load()) }

// LastFailure returns when Redis last could not be asked, and the error; nil if it always could.
func (s *Shard) LastFailure() (at time.Time, reason error) {
	if reason = s.reason(); reason == nil {
		return time.Time{}, nil
	}
	return time.Unix(0, s.times.failed.Load()), reason
}

// Address returns the address of the shard's Redis, or "" if it is not known.
func (s *Shard) Address() string {
	if w := s.where.Load(); w != nil {
		return w.addr
	}
	return s.all.Config.Address
}
