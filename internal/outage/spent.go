package outage

import (
	"sync"
	"time"
)

// spent counts how long the limiter has been in each state. It is safe for concurrent use.
type spent struct {
	mu    sync.Mutex
	state State
	since time.Time
	times [Settling + 1]time.Duration
	ended time.Time // when the limiter was closed; zero if it was not
}

// enter counts the time from now on for a state. It reports whether that is another one than before.
func (s *spent) enter(to State, now time.Time) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = to != s.state
	s.times[s.state] += now.Sub(s.since)
	s.state, s.since = to, now
	return changed
}

// until returns how long each state has lasted so far.
func (s *spent) until(now time.Time) map[State]time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	times := make(map[State]time.Duration, len(s.times))
	for state, took := range s.times {
		times[State(state)] = took
	}
	if !s.ended.IsZero() {
		now = s.ended
	}
	times[s.state] += now.Sub(s.since)
	return times
}

// end stops the counting.
func (s *spent) end(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = now
}

// TimeSpent returns how long the limiter has been in each state since [New]. On a Cluster the worst
// state of any master is the limiter's.
func (l *Shards) TimeSpent() map[State]time.Duration { return l.spent.until(time.Now()) }
