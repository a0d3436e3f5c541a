package outage

import (
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// Misses are frequent if, for three deadlines, a fifth of all decisions has missed Redis.
func TestWhenMissesAreFrequent(t *testing.T) {
	const deadline = 50 * time.Millisecond
	for _, test := range []struct {
		name     string
		every    time.Duration
		answered int64 // between two misses
		together int   // misses at a time
		times    int
		want     bool
	}{
		{"all of them", 10 * time.Millisecond, 0, 1, 20, true},
		{"one in five", 40 * time.Millisecond, 4, 1, 20, true},
		{"one in six", 40 * time.Millisecond, 5, 1, 100, false},
		{"many at one moment", 0, 0, 1000, 1, false},
		{"many at moments that lie apart", 1100 * time.Millisecond, 0, 100, 20, false},
		{"rarely asked", 900 * time.Millisecond, 0, 1, 10, true},
		{"five", 900 * time.Millisecond, 0, 1, 5, false},
		{"five after the first", 900 * time.Millisecond, 0, 1, 6, true},
		{"for less than three deadlines", 10 * time.Millisecond, 0, 1, 15, false},
		{"for three deadlines", 10 * time.Millisecond, 0, 1, 16, true},
	} {
		var m misses
		now, answered, often := int64(time.Hour), int64(1000), false
		for range test.times {
			now, answered = now+int64(test.every), answered+test.answered
			for range test.together {
				often = m.record(now, answered, deadline)
			}
		}
		if often != test.want {
			t.Errorf("%s: often is %v", test.name, often)
		}
	}
}

// Many misses at one moment count as one, even in the first second of a limiter's clock.
func TestMissesOfTheFirstMoment(t *testing.T) {
	var m misses
	for range 100 {
		if m.record(int64(500*time.Millisecond), 0, 50*time.Millisecond) {
			t.Fatal("many at one moment count as often")
		}
	}
}

// Law 11: while misses continue, they postpone the end of the settling. While Redis is lost, misses do not begin it.
func TestMissesPutOffTheEnd(t *testing.T) {
	l := newShards(t, 1)
	s := l.first
	l.heartbeat(t, s)
	r := newRule(t, "r", limit.PerHour(100), limit.SlidingLog())
	miss := func() {
		for range 20 {
			q := request(r, "k", 1)
			q.Operation = lua.Peek
			without(s, q, l.Now(), remote.ErrNoAnswer)
			l.now.Add(int64(20 * time.Millisecond))
		}
	}
	miss()
	if s.State() != Settling || s.TierSettling() != limit.TierOverload {
		t.Fatalf("%v, %v", s.State(), s.TierSettling())
	}
	l.now.Add(int64(settleAtLeast) - int64(300*time.Millisecond))
	miss()
	if l.heartbeat(t, s); s.State() != Settling {
		t.Errorf("%v though it is missed all the time", s.State())
	}
	l.now.Add(int64(settleAtLeast))
	if l.heartbeat(t, s); s.State() != Healthy {
		t.Errorf("%v when it is missed no more", s.State())
	}
	miss()
	back := s.incident.Load().back
	l.now.Add(int64(time.Second / 2))
	miss()
	if s.end(back, true); s.State() != Settling {
		t.Errorf("%v: it was put off between the look whether it is over and its end", s.State())
	}
	s.Breaker.ForceOpen(errLost)
	if miss(); s.State() != Outage || s.incident.Load().back != 0 {
		t.Errorf("a lost Redis is %v", s.State())
	}
}

// Misses after an outage do not change the tier of what is denied until Redis knows of all grants.
func TestMissesAfterAnOutage(t *testing.T) {
	l := newShards(t, 1)
	s := l.first
	l.heartbeat(t, s)
	s.Breaker.ForceOpen(errLost)
	l.closeBreaker(t, s)
	for range 20 {
		s.Missed(remote.ErrNoAnswer)
		l.now.Add(int64(20 * time.Millisecond))
	}
	if tier := s.TierSettling(); s.State() != Settling || tier != limit.TierFallback || l.Counts.Missed[NotInTime].Load() != 20 {
		t.Errorf("%v, %v, %d misses", s.State(), tier, l.Counts.Missed[NotInTime].Load())
	}
}

// A key whose value cannot be read says nothing about how fast Redis is.
func TestUnreadableKeysAreNoMisses(t *testing.T) {
	l := newShards(t, 1)
	for range 20 {
		l.first.Missed(remote.ErrUnreadable)
		l.now.Add(int64(20 * time.Millisecond))
	}
	if n := l.Counts.Missed[NotInTime].Load(); n != 0 || l.State() != Healthy {
		t.Errorf("%d misses, %v", n, l.State())
	}
}

// Law 11: a reservation that has left the window takes nothing back from later ones.
func TestLaw11ReservationsThatAreReleasedLate(t *testing.T) {
	l := newShards(t, 1)
	s := l.first
	q := &Request{Rule: newRule(t, "r", limit.PerSecond(10), limit.SlidingLog()), Hash: 1, Key: "k", Cost: 10, Operation: lua.TakeUpTo}
	s.settleAnew()
	first, _, _ := s.Reserve(q)
	l.now.Add(int64(1200 * time.Millisecond))
	second, _, _ := s.Reserve(q)
	s.Release(q, first)
	third, _, _ := s.Reserve(q)
	if first.Units == 0 || second.Units+third.Units > first.Units {
		t.Errorf("%d units, and later %d and %d at the same time", first.Units, second.Units, third.Units)
	}
}
