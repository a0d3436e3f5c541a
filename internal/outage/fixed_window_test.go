package outage

import (
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
)

// Law 11: after a loss of data, a rule per day settles until the day is over on Redis's clock, and not for 24 hours.
// Otherwise a key that had used up its limit in the morning would be denied until the next morning.
func TestLaw11FixedWindowsSettleUntilTheirEnd(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		lim  limit.Limit
		a    limit.Algorithm
		end  time.Time // of the day in which Redis loses its data
		ends bool
	}{
		"fixed":    {limit.PerDay(100), limit.FixedWindow(), time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC), true},
		"calendar": {limit.PerCalendar(100, limit.CalendarDay, berlin), limit.FixedWindow(), time.Date(2026, 3, 2, 0, 0, 0, 0, berlin), true},
		"log":      {limit.PerDay(100), limit.SlidingLog(), time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC), false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newShards(t, 1)
			s, m := l.first, l.masters[0]
			r := newRule(t, "r", c.lim, c.a)
			heartbeatAt := func(before time.Duration) { // the end of the day
				l.now.Store(int64(1000*time.Hour - before))
				m.heard.Clock = c.end.Add(-before).UnixMicro()
				l.heartbeat(t, s)
			}
			heartbeatAt(14 * time.Hour)
			s.Learned(request(r, "k", 100), &remote.Reply{Granted: 100})
			m.heard.Generation = "second"
			heartbeatAt(time.Hour)
			for _, before := range []time.Duration{time.Minute, time.Second} {
				heartbeatAt(before)
				if _, _, ok := s.Reserve(request(r, "k", 1)); !s.Settling(r) || ok {
					t.Errorf("%v before the end: settles %v, has room %v", before, s.Settling(r), ok)
				}
			}
			l.now.Add(int64(2 * time.Second)) // the next heartbeat has not been sent yet
			if s.Settling(r) == c.ends {
				t.Errorf("after the end: settles %v", s.Settling(r))
			}
			if o := s.OutageOf(r); (o.Number == 0) != c.ends {
				t.Errorf("after the end: %+v", o)
			}
		})
	}
}

// Law 11: a heartbeat may take a while to reach Redis. An instance does not take the day for over that much too early:
// Redis, which does not know what was granted before it lost its data, would grant it again in the rest of the day.
func TestLaw11AFixedWindowIsNotOverBeforeItIsInRedis(t *testing.T) {
	const slow = 100 * time.Millisecond
	l := newShards(t, 1)
	s, m := l.first, l.masters[0]
	r := newRule(t, "r", limit.PerDay(100), limit.FixedWindow())
	end := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	heartbeatAt := func(before time.Duration) { // the end of the day
		l.now.Store(int64(1000*time.Hour - before - slow))
		m.heard.Clock = end.Add(-before).UnixMicro()
		m.delayed = func() { l.now.Add(int64(slow)) }
		l.heartbeat(t, s)
	}
	heartbeatAt(2 * time.Hour)
	s.Learned(request(r, "k", 100), &remote.Reply{Granted: 100})
	m.heard.Generation = "second"
	heartbeatAt(time.Hour)
	heartbeatAt(slow / 2)
	if !s.Settling(r) {
		t.Error("the rule does not settle, although the day is not over")
	}
	if l.now.Add(int64(slow / 2)); s.Settling(r) {
		t.Error("the rule settles, although the day is over")
	}
}

// usedUpAtTheStartOfADay returns a shard, its master, and a rule per day of which a key is used up. heartbeatAt makes the
// heartbeat at a time after the start of the day, by the clock that the master had then, or by one that is behind it.
func usedUpAtTheStartOfADay(t *testing.T) (s *Shard, m *master, r *Rule, heartbeatAt func(after, clockBehind time.Duration)) {
	l := newShards(t, 1)
	s, m = l.first, l.masters[0]
	r = newRule(t, "r", limit.PerDay(100), limit.FixedWindow())
	start := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	began := l.Now()
	heartbeatAt = func(after, clockBehind time.Duration) {
		l.now.Store(began + int64(after))
		m.heard.Clock = start.Add(after - clockBehind).UnixMicro()
		l.heartbeat(t, s)
	}
	heartbeatAt(time.Minute, 0)
	s.Learned(request(r, "k", 100), &remote.Reply{Granted: 100})
	return s, m, r, heartbeatAt
}

// Law 11: the server that takes over without data may have a clock that is behind. What was granted in the window that
// had begun by the old clock counts until that window is over by the new one. If it counted only until the window
// begins, Redis, which does not know of it, would grant it a second time.
func TestLaw11AFixedWindowBeginsTwice(t *testing.T) {
	const behind = 20 * time.Minute
	s, m, r, heartbeatAt := usedUpAtTheStartOfADay(t)
	m.heard.Generation = "second"
	heartbeatAt(10*time.Minute, behind)
	for _, after := range []time.Duration{behind - time.Second, behind + time.Second, behind + time.Hour, 20 * time.Hour} {
		heartbeatAt(after, behind)
		if _, _, ok := s.Reserve(request(r, "k", 1)); !s.Settling(r) || ok {
			t.Errorf("%v after the start by the old clock: settles %v, has room %v", after, s.Settling(r), ok)
		}
	}
	heartbeatAt(24*time.Hour+behind+time.Second, behind)
	if s.Settling(r) {
		t.Error("it settles after the end of the window by the new clock")
	}
}

// Law 11: if data are lost again on the server whose clock is behind, what was granted before the first loss still
// counts until the window by the first clock is over by the new one.
func TestLaw11AFixedWindowBeginsTwiceThroughTwoLosses(t *testing.T) {
	const behind = 20 * time.Minute
	s, m, r, heartbeatAt := usedUpAtTheStartOfADay(t)
	m.heard.Generation = "second"
	heartbeatAt(5*time.Minute, behind)
	m.heard.Generation = "third"
	heartbeatAt(10*time.Minute, behind)
	if heartbeatAt(behind+time.Hour, behind); !s.Settling(r) {
		t.Error("it does not settle in the window that had begun by the first clock")
	}
}

// Law 11: without a loss of data, too, a rule with fixed windows settles until the window is over on Redis's clock in
// which Redis came back, and at least until instances that are not back no longer count as members. While Redis is
// lost, the rule's shares stay fixed.
func TestLaw11FixedWindowsSettleAfterAnOutage(t *testing.T) {
	for back, until := range map[time.Duration]time.Duration{ // before the end of the day
		time.Hour:    0,
		FleetTTL / 2: -FleetTTL / 2,
	} {
		l := newShards(t, 1)
		s, m := l.first, l.masters[0]
		r := newRule(t, "r", limit.PerDay(100), limit.FixedWindow())
		end := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
		at := func(before time.Duration) {
			l.now.Store(int64(1000*time.Hour - before))
			m.heard.Clock = end.Add(-before).UnixMicro()
		}
		at(3 * time.Hour)
		m.heard.Size = 2
		l.heartbeat(t, s)
		s.Breaker.ForceOpen(errLost)
		if l.now.Add(int64(2 * FleetTTL)); !s.Settling(r) || s.OutageOf(r).Number == 0 {
			t.Error("its shares are not fixed in the outage")
		}
		at(back)
		m.heard.Unsettled = 1 // another instance owes units
		l.closeBreaker(t, s)
		for _, left := range []time.Duration{time.Second, -time.Second} {
			at(until + left)
			if l.heartbeat(t, s); s.Settling(r) != (left > 0) {
				t.Errorf("Redis came back %v before the end: %v before it, the rule settles: %v", back, until+left, left <= 0)
			}
		}
	}
}
