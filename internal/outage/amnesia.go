package outage

import (
	"math"
	"sync"
	"time"

	"github.com/tierlimit/tierlimit/remote"
)

// memory detects whether Redis has lost its data.
//
// Redis loses its data by FLUSHALL, a restart, or a failover to a replica that is empty or behind. It
// would then grant everyone a second quota. Every instance detects the loss by itself, and charges again
// what it granted itself, each key after its next use.
type memory struct {
	mu         sync.Mutex // guards the rest
	place      string     // of the last heartbeat
	generation string
	// heartbeats are those that were answered, oldest first. A stale replica reports the newest heartbeat
	// that it has.
	heartbeats []heartbeat
	// chargedSince is the time of the oldest grant whose charge was answered after the newest heartbeat; 0:
	// there was none.
	chargedSince int64
	losses       int // number of data losses
}

type heartbeat struct {
	sequence int64
	at       int64 // the limiter's time before the heartbeat was sent
	answered int64 // the limiter's time once it was answered
	clock    int64 // Redis's time in between, in µs
	// chargedSince is the time of the oldest grant whose charge was answered between the previous heartbeat
	// and this one; 0: there was none.
	chargedSince int64
}

const heartbeatsKept = 64

// remembers compares the result of a heartbeat with earlier ones. If Redis has lost data, since is the
// time from which on data are lost. In that case, remembers calls forget with since while it holds mu, so
// that chargers see the loss in one step: charges that are sent later are not lost.
func (m *memory) remembers(h remote.Heard, sent, answered int64, forget func(since int64)) (remembers bool, since int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	remembers = true
	switch {
	case m.generation == "", m.place != h.Place: // data of different places cannot be compared
		m.heartbeats = nil
	case h.Generation != m.generation:
		remembers, since = false, math.MinInt64
		m.heartbeats = nil
	case m.lacksNewest(h):
		remembers, since = false, math.MinInt64
		for _, b := range m.heartbeats {
			if b.sequence <= h.Survived {
				since = b.at
			}
		}
		for _, b := range m.heartbeats {
			if b.sequence >= h.Survived { // charges are sent beside heartbeats, and in any order
				since = earlier(since, b.chargedSince)
			}
		}
		since = earlier(since, m.chargedSince)
		m.heartbeats = nil
	}
	if !remembers {
		m.losses++
		forget(since)
	}
	m.place, m.generation = h.Place, h.Generation
	m.heartbeats = append(m.heartbeats, heartbeat{h.Sequence, sent, answered, h.Clock, m.chargedSince})
	m.chargedSince = 0
	if len(m.heartbeats) > heartbeatsKept {
		m.heartbeats = m.heartbeats[1:]
	}
	return remembers, since
}

// lacksNewest reports whether Redis lacks the newest heartbeat that it has answered, although that heartbeat
// cannot have expired yet. If Redis has none of this instance's heartbeats, the replica that has taken
// over was cut off before this instance began.
func (m *memory) lacksNewest(h remote.Heard) bool {
	newest := m.heartbeats[len(m.heartbeats)-1]
	if h.Survived < 0 {
		return time.Duration(h.Clock-newest.clock)*time.Microsecond < remote.HeartbeatLife(newest.sequence)
	}
	return h.Survived < newest.sequence
}

// clock returns Redis's time at a moment, in µs, going by the newest heartbeat: a window that has ended by the earliest
// time has ended in Redis, and one that has not begun by the latest has not begun there. Both are 0 if there was no
// heartbeat.
func (m *memory) clock(now int64) (earliest, latest int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.heartbeats) == 0 {
		return 0, 0
	}
	newest := m.heartbeats[len(m.heartbeats)-1]
	return newest.clock + (now-newest.answered)/1000, newest.clock + (now-newest.at)/1000
}

// lossesSoFar returns how often Redis has lost data.
func (m *memory) lossesSoFar() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.losses
}

// charged records that units were charged that were granted at the given time or later. If Redis loses
// these charges, grants are lost since that time. charged returns false if Redis has lost data since
// lossesBefore was read: the loss may include these charges, but its beginning was determined without
// them.
func (m *memory) charged(granted int64, lossesBefore int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.chargedSince = earlier(m.chargedSince, granted)
	return m.losses == lossesBefore
}

// earlier returns the earlier of two times. Either may be 0 for no time.
func earlier(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// dataLost begins or continues an incident, because Redis has lost everything that was granted since the
// given time. clock is the time that it would be by Redis's clock from before the loss. The ledger has recorded the loss
// already. So a caller that sees this shard settle has a key's grants charged again when it uses the key.
func (s *Shard) dataLost(since, clock int64) {
	l := s.all
	now := l.Now()
	l.Counts.DataLosses.Add(1) // first, so that a caller that sees this shard settle finds the loss counted
	s.settleFromNow(func(e *incident, _ bool) {
		e.overload, e.forgotten, e.clock, e.decides = false, max(1, now), max(e.clock, clock), now
	})
	l.DataLost(s)
	age := "all"
	if since > 0 {
		age = time.Duration(now - since).String()
	}
	s.warn("amnesia", "Redis has lost data; this instance charges its own grants there again", "lost", age)
}
