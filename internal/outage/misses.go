package outage

import (
	"errors"
	"sync"
	"time"

	"github.com/tierlimit/tierlimit/breaker"
	"github.com/tierlimit/tierlimit/remote"
)

// Decisions miss Redis often if at least a given number did, and one in a given number of all, over
// a given number of deadlines. A single moment in which many miss it together does not count.
const (
	missesLeast = 5
	missesPart  = 5
	missesLast  = 3
	missesApart = time.Second // misses further apart are counted separately
)

// misses detects that decisions often miss Redis, though not often enough for the breaker to open:
// Redis is as slow as the deadline, or some packets get lost.
//
// Calls that Redis answers are granted all that is left of the limit, and calls that it does not
// answer are granted this instance's share in addition. So meanwhile the shard settles: shares are
// fixed, and Redis does not decide alone (law 11).
type misses struct {
	mu          sync.Mutex // guards the rest
	began, last int64      // of a series of misses, on the limiter's clock
	missed      int64      // decisions after the first
	answered    int64      // decisions before
}

// miss records a decision that missed Redis, with the number answered in all, and reports whether
// that happens often.
func (m *misses) miss(now, answered int64, deadline time.Duration) (often bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.missed++
	if m.last == 0 || now-m.last > int64(missesApart) || m.missed*missesPart < m.missed+answered-m.answered {
		m.began, m.missed, m.answered = now, 0, answered
	}
	m.last = now
	return m.missed >= missesLeast && now-m.began >= missesLast*int64(deadline)
}

// Miss is the reason why Redis did not make a decision although it was not lost.
type Miss int

// The reasons.
const (
	NotInTime Miss = iota // there was no answer before the limiter's deadline, or none to be expected, or an error
	NoRoom                // too many decisions waited
	OwnTime               // the call's own time was over before, see remote.DecideBy
)

// Missed records that Redis should have made a decision and did not, with the reason.
func (s *Shard) Missed(err error) {
	l := s.all
	switch {
	case errors.Is(err, remote.ErrNoRoom): // first, because under overload most are
		l.Counts.Missed[NoRoom].Add(1)
	case errors.Is(err, breaker.ErrOpen), errors.Is(err, remote.ErrUnreadable):
		return
	case errors.Is(err, remote.ErrDecideBy): // which says nothing of Redis
		l.Counts.Missed[OwnTime].Add(1)
		return
	default:
		l.Counts.Missed[NotInTime].Add(1)
	}
	if s.misses.miss(l.Now(), s.Answered(), l.Deadline) && s.settleForLoad() {
		s.warn("misses", "Redis often does not answer in time; until it does, this instance keeps to its share of the limits, too", "deadline", l.Deadline)
	}
}

// settleForLoad makes a shard settle from now on because Redis is too slow. It reports whether it did not settle before.
func (s *Shard) settleForLoad() (begun bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	begun = s.uncharged() == nil
	if e := s.settleFromNow(); begun {
		e.load.Store(true)
	}
	return begun
}

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
