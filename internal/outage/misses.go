package outage

import (
	"errors"
	"sync"
	"time"

	"github.com/tierlimit/tierlimit/breaker"
	"github.com/tierlimit/tierlimit/remote"
)

// Decisions miss Redis often under two conditions, over missesLast deadlines: at least missesLeast
// decisions missed it, and at least one in missesPart of all decisions. A single moment in which many
// decisions miss Redis together does not count.
const (
	missesLeast = 5
	missesPart  = 5
	missesLast  = 3
	missesApart = time.Second // misses further apart are counted separately
)

// misses detects that decisions often miss Redis, though not often enough for the breaker to open: Redis
// is as slow as the deadline, or some packets get lost.
//
// Calls that Redis answers can be granted everything that is left of the limit, and calls that it does
// not answer are granted this instance's share in addition. So meanwhile the shard settles: shares are
// fixed, and Redis does not decide alone (law 11).
type misses struct {
	mu          sync.Mutex // guards the rest
	began, last int64      // of a series of misses, on the limiter's clock
	missed      int64      // decisions missed after the first one of the series
	answered    int64      // decisions answered before the series
	oftenAt     int64      // when decisions last missed Redis often
}

// record records a decision that missed Redis. answered is the number of all answered decisions so far.
// It reports whether decisions miss Redis often.
func (m *misses) record(now, answered int64, deadline time.Duration) (often bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.missed++
	if m.last == 0 || now-m.last > int64(missesApart) || m.missed*missesPart < m.missed+answered-m.answered {
		m.began, m.missed, m.answered = now, 0, answered
	}
	m.last = now
	if often = m.missed >= missesLeast && now-m.began >= missesLast*int64(deadline); often {
		m.oftenAt = now
	}
	return often
}

// lately reports whether a decision missed Redis a moment ago, and whether decisions missed it often then.
func (m *misses) lately(now int64) (any, often bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	isLate := func(at int64) bool { return at != 0 && now-at < int64(missesApart) }
	return isLate(m.last), isLate(m.oftenAt)
}

// Miss is the reason why Redis did not make a decision although it was not lost.
type Miss int

// The reasons.
const (
	NotInTime Miss = iota // no answer before the limiter's deadline, or none expected, or an error
	NoRoom                // too many decisions waited
	OwnTime               // the call's own time was over earlier; see remote.DecideBy
)

// Missed records that Redis should have made a decision and did not. err is the reason.
func (s *Shard) Missed(err error) {
	l := s.all
	switch {
	case errors.Is(err, remote.ErrNoRoom): // first, because most misses are of this kind under overload
		l.Counts.Missed[NoRoom].Add(1)
	case errors.Is(err, breaker.ErrOpen), errors.Is(err, remote.ErrUnreadable):
		return
	case errors.Is(err, remote.ErrDecideBy): // says nothing about Redis
		l.Counts.Missed[OwnTime].Add(1)
		return
	default:
		l.Counts.Missed[NotInTime].Add(1)
	}
	if !s.misses.record(l.Now(), s.Answered(), l.Deadline) {
		return
	}
	if s.settleFromNow(func(e *incident, isNew bool) { e.overload = e.overload || isNew }) {
		s.charger.wake.Send()
		s.warn("misses", "Redis often does not answer in time; until it does, this instance also keeps to its share of the limits", "deadline", l.Deadline)
	}
}
