package outage

import "time"

// silence is since when Redis has not answered: since the first trip of those that failed, with
// none answered after it, began.
//
// If it becomes an outage, that is when the outage began, and not three deadlines later, when
// the breaker opens: what leaves the window until then, and is granted by nobody, would be
// missing in all shares for as long as the outage lasts. So shares are fixed as of that moment
// (law 11), under the number that the incident will have.
type silence struct {
	number uint32
	began  int64
}

// TripEnded is told of each trip, before its callers learn what became of it.
func (s *Shard) TripEnded(callers int, took time.Duration, err error) {
	s.all.Counts.Trip(callers, took, err)
	if err != nil {
		s.Failed(err)
	}
	known := s.silence.Load()
	switch {
	case err == nil && known != nil:
		s.silence.CompareAndSwap(known, nil)
	case err != nil && known == nil:
		s.silence.CompareAndSwap(nil, &silence{s.all.incidents.Add(1), s.all.Now() - int64(took)})
	}
}
