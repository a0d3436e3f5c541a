package outage

import "time"

// silence is the time since which Redis has not answered: the start of the first failed trip after
// which none was answered.
//
// If it becomes an outage, the outage began at that time, and not three deadlines later, when the
// breaker opens. Units that leave the window in between, and that nobody grants, would otherwise be
// missing in all shares for as long as the outage lasts. So shares are fixed as of that time (law
// 11), under the number that the incident will have.
type silence struct {
	number uint32
	began  int64
}

// TripEnded is called for each trip, before its callers get their answers.
func (s *Shard) TripEnded(callers int, took time.Duration, err error) {
	s.all.Trip(callers, took, err)
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
