package outage

import (
	"math"
	"sync"
	"time"

	"github.com/tierlimit/tierlimit/remote"
)

// memory detects whether Redis has lost its data.
//
// Redis loses it by FLUSHALL, a restart, or a failover to a replica that is empty or behind. Then
// it would grant everyone a second quota. Every instance detects this by itself, and charges again
// what it granted itself, each key after its next use.
type memory struct {
	mu         sync.Mutex // guards the rest
	place      string     // of the last heartbeat
	generation string
	// answered heartbeats, oldest first; a stale replica reports the newest that it has.
	heartbeats []heartbeat
}

type heartbeat struct {
	sequence int64
	at       int64 // the limiter's time, before it was sent
}

const heartbeatsKept = 64

// remembers compares the result of a heartbeat with earlier ones. If Redis has lost data, since is
// the time from which on they are lost.
func (m *memory) remembers(h remote.Heard, sent int64) (remembers bool, since int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	remembers = true
	switch {
	case m.generation == "", m.place != h.Place: // data of another place cannot be compared
		m.heartbeats = nil
	case h.Generation != m.generation:
		remembers, since = false, math.MinInt64
		m.heartbeats = nil
	case len(m.heartbeats) > 0 && h.Survived < m.heartbeats[len(m.heartbeats)-1].sequence && h.Survived >= 0:
		remembers, since = false, math.MinInt64
		for _, b := range m.heartbeats {
			if b.sequence <= h.Survived {
				since = b.at
			}
		}
		m.heartbeats = nil
	}
	m.place, m.generation = h.Place, h.Generation
	m.heartbeats = append(m.heartbeats, heartbeat{h.Sequence, sent})
	if len(m.heartbeats) > heartbeatsKept {
		m.heartbeats = m.heartbeats[1:]
	}
	return remembers, since
}

// forgot begins or continues an incident, because Redis has lost what was granted since the given
// time.
func (s *Shard) forgot(since int64) {
	l := s.all
	now := l.Now()
	s.mu.Lock()
	e := s.uncharged()
	if e == nil {
		e = s.begin(now)
	}
	e.load.Store(false)
	if e.forgotten.Swap(true) {
		since = min(since, e.forgottenSince)
	}
	e.forgottenSince = since
	if s.Breaker.Closed() {
		e.isBack(now)
	}
	s.mu.Unlock()

	l.Ledger.Forgotten(s.has(), since)
	l.Forgotten(s)
	s.charger.dropped.Store(true)
	l.Counts.Forgot()
	age := "all"
	if since > 0 {
		age = time.Duration(now - since).String()
	}
	s.warn("amnesia", "Redis has lost its memory; this instance's own grants are charged again", "lost", age)
	if s.Breaker.Closed() {
		s.changed(Settling)
	}
}

// suspect triggers a heartbeat at once, because Redis counts less than this instance alone was
// granted. It never waits.
func (s *Shard) suspect() {
	select {
	case s.suspicions <- struct{}{}:
	default:
	}
}
