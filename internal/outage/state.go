package outage

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// State says who makes decisions at the moment.
type State uint8

const (
	// Healthy means that Redis decides.
	Healthy State = iota
	// Outage means that Redis counts as lost, and the rules' outage policies decide.
	Outage
	// Settling means that Redis does not know of all grants, because it is just back, has lost data, or
	// often misses the deadline. A request must fit both in Redis and in this instance's share of the
	// limit. Only for rules with the policy Allow, Redis decides alone.
	Settling
)

var stateNames = [...]string{Healthy: "healthy", Outage: "outage", Settling: "settling"}

// String returns "healthy", "outage" or "settling".
func (s State) String() string { return nameOf("State", stateNames[:], int(s)) }

// MarshalText writes String, so that JSON and logs show the name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what String returns.
func (s *State) UnmarshalText(text []byte) error {
	i := slices.Index(stateNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("tierlimit: state %q, must be one of %s", text, strings.Join(stateNames[:], ", "))
	}
	*s = State(i)
	return nil
}

// nameOf returns the name of a value of a kind, or a substitute if it has none.
func nameOf(kind string, names []string, value int) string {
	if value < len(names) {
		return names[value]
	}
	return fmt.Sprintf("%s(%d)", kind, value)
}

// worse returns the worse of two states, in the order healthy, settling, outage.
func worse(a, b State) State {
	if a == Outage || b == Outage {
		return Outage
	}
	return max(a, b)
}

// changed makes reportChanges report that the state has changed. It never waits.
func (s *Shard) changed() {
	s.changedAt.Store(time.Now().UnixNano())
	s.all.changes.Send()
}

// Since returns the time since which the shard has been in its state.
func (s *Shard) Since() time.Time { return time.Unix(0, s.changedAt.Load()) }

// reportChanges runs in the background. It logs each shard's changes of state, and calls Config.Changed. A
// state that is over before it has been reported is left out, but the latest state is always reported.
func (l *Shards) reportChanges() {
	l.changes.Run(l.Context, func() (pause time.Duration) {
		r := l.routes.Load()
		for _, s := range r.shards {
			if to := s.State(); to != s.reported {
				s.log(to)
			}
		}
		state := Healthy
		for _, s := range r.used {
			state = worse(state, s.reported)
		}
		if l.stateTimes.enter(state, time.Now()) && l.Changed != nil {
			l.Changed(state)
		}
		return 0
	})
	l.stateTimes.end(time.Now())
}

// log logs a shard's new state, the previous state and its duration, and the reason.
func (s *Shard) log(to State) {
	now := time.Now()
	if s.reported == Healthy {
		s.unhealthySince = now
	}
	args := []any{"fleet_size", s.fleet.Size(), "was", s.reported.String(), "lasted", now.Sub(s.reportedAt).Round(time.Millisecond)}
	if to == Healthy {
		args = append(args, "unwell_for", now.Sub(s.unhealthySince).Round(time.Millisecond))
	}
	if !s.all.onCluster() { // on a Cluster, the line has the master
		args = append(args, "address", s.Address())
	}
	// An older error is not the reason, because a shard may settle without Redis having been lost.
	if at, err := s.LastFailure(); err != nil && (to == Outage || !at.Before(s.unhealthySince.Add(-recently))) {
		args = append(args, "error", err)
	}
	s.reported, s.reportedAt = to, now
	switch to {
	case Outage:
		s.warn("outage", "Redis counts as lost; decisions are made by the rules' outage policies", args...)
	case Settling:
		s.info("settling", "until Redis is stable and knows of all grants, both Redis and this instance's share must allow a request", args...)
	case Healthy:
		s.info("healthy", "Redis decides again", args...)
	}
}

// recently is how long before a change of state a failure counts as its cause.
const recently = 10 * time.Second

// warn and info log an event of a shard. On a Cluster, they add the shard's master.
func (s *Shard) warn(kind, message string, args ...any) {
	s.all.Log.Warn(s.kind(kind), message, append(args, s.name()...)...)
}

func (s *Shard) info(kind, message string, args ...any) {
	s.all.Log.Info(s.kind(kind), message, append(args, s.name()...)...)
}

// stateTimes counts how long the limiter has been in each state. It is safe for concurrent use.
type stateTimes struct {
	mu    sync.Mutex
	state State
	since time.Time
	times [Settling + 1]time.Duration
	ended time.Time // when the limiter was closed; zero if it was not
}

// enter counts the time from now on for a state. It reports whether the state is a new one.
func (s *stateTimes) enter(to State, now time.Time) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = to != s.state
	s.times[s.state] += now.Sub(s.since)
	s.state, s.since = to, now
	return changed
}

// until returns how long each state has lasted so far.
func (s *stateTimes) until(now time.Time) map[State]time.Duration {
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
func (s *stateTimes) end(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = now
}

// TimeSpent returns how long the limiter has been in each state since [New]. On a Cluster, the limiter's
// state is the worst state of any master.
func (l *Shards) TimeSpent() map[State]time.Duration { return l.stateTimes.until(time.Now()) }
