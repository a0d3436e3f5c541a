package outage

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// If a reply shows that Redis counts fewer units than this instance alone was granted, the next heartbeat is sent
// at once.
func TestForgetfulReplyIsFollowedByAHeartbeat(t *testing.T) {
	l := newShards(t, 1)
	q := request(newRule(t, "r", limit.PerHour(100), limit.SlidingLog()), "k", 50)
	s := l.first
	s.Learned(q, &remote.Reply{Granted: 50, Remaining: 50})
	s.Learned(q, &remote.Reply{Granted: 1, Remaining: 60})
	if len(s.suspicions) != 0 {
		t.Error("suspicion where Redis counts 40 of 51")
	}
	s.Learned(q, &remote.Reply{Granted: 1, Remaining: 99})
	if len(s.suspicions) != 1 {
		t.Error("no suspicion where Redis counts 1 of 52")
	}
}

// Law 11: units that Redis has forgotten are charged again after the key's next use, and the rule settles for its
// window.
func TestLaw11ForgottenGrantsAreChargedAgain(t *testing.T) {
	l := newShards(t, 1)
	s, m := l.first, l.masters[0]
	r := newRule(t, "r", limit.PerHour(100), limit.SlidingLog())
	l.heartbeat(t, s)
	s.Learned(request(r, "k", 80), &remote.Reply{Granted: 80, Remaining: 20})
	m.heard.Generation = "another"
	l.heartbeat(t, s)
	if s.State() != Settling || !s.Settling(r) || l.Counts.DataLosses.Load() != 1 {
		t.Fatalf("%v, the rule settles: %v", s.State(), s.Settling(r))
	}
	if s.chargeSome(); len(m.charged) != 0 {
		t.Errorf("charged before the key was used: %+v", m.charged)
	}
	own, d, ok := s.Reserve(request(r, "k", 20))
	if !ok || own.Units != 20 {
		t.Fatalf("%+v, %+v", own, d)
	}
	s.Release(request(r, "k", 20), own)
	if _, d, ok := s.Reserve(request(r, "k", 21)); ok || d.Allowed || d.Tier != limit.TierFallback || d.RetryAfter == 0 || d.ResetAfter != time.Hour {
		t.Errorf("above the limit: %+v", d)
	}
	if own, d, ok = s.Reserve(request(r, "k", 20)); !ok {
		t.Errorf("the units that were released are not free: %+v", d)
	}
	s.Release(request(r, "k", 20), own)
	if !s.Settling(&Rule{Name: r.Name, Limit: r.Limit, Policy: r.Policy}) || s.Settling(&Rule{Name: r.Name, Limit: r.Limit, Policy: Allow}) {
		t.Error("a rule settles whose policy is to let everything through")
	}
	for s.Owes() {
		s.chargeSome()
	}
	if units := m.units(); units != 80 {
		t.Errorf("%d units charged again, want 80: %+v", units, m.charged)
	}
	l.now.Add(int64(30 * minute))
	if l.heartbeat(t, s); m.owed || !s.Settling(r) {
		t.Errorf("says that it has not settled: %v; settles for its window: %v", m.owed, s.Settling(r))
	}
	without(s, request(r, "another", 1), l.Now(), errLost)
	if l.heartbeat(t, s); !m.owed { // whoever starts now must settle
		t.Error("it does not say that it owes units")
	}
	for s.Owes() {
		s.chargeSome()
	}
	l.now.Add(int64(31 * minute))
	l.heartbeat(t, s)
	if s.Settling(r) || s.State() != Settling {
		t.Errorf("%v after the rule's window, it settles: %v", s.State(), s.Settling(r))
	}
	l.now.Add(int64(24 * time.Hour))
	if l.heartbeat(t, s); s.State() != Healthy {
		t.Errorf("%v after the longest window", s.State())
	}
}

// Law 3: charges may be taken out of the journal before Redis is known to have lost all data, and sent only
// afterwards. They are not made in addition to the charges of the same units that the loss calls for.
func TestLaw3ALossIsNoticedBeforeChargesAreSent(t *testing.T) {
	l := newShards(t, 1)
	s, m := l.first, l.masters[0]
	r := newRule(t, "r", limit.PerHour(100), limit.SlidingLog())
	l.heartbeat(t, s)
	without(s, request(r, "k", 7), l.Now(), errLost)
	batch := s.nextCharges(l.Now(), false)
	m.heard.Generation = "another"
	l.heartbeat(t, s)
	s.charge(batch)
	s.Reserve(request(r, "k", 1))
	for s.Owes() {
		s.chargeSome()
	}
	if m.units() != 7 {
		t.Errorf("%d units charged, want 7: %+v", m.units(), m.charged)
	}
}

// Law 11: units that Redis had forgotten have left their window after that time, even if Redis is lost or slow
// meanwhile. Otherwise, an outage or misses in each window would keep the shares of the first loss forever.
func TestLaw11ALossOfMemoryMattersForAWindow(t *testing.T) {
	l := newShards(t, 1)
	s, m := l.first, l.masters[0]
	r := newRule(t, "r", limit.PerDay(100), limit.SlidingLog())
	l.heartbeat(t, s)
	m.heard.Generation = "another"
	l.heartbeat(t, s)
	l.now.Add(int64(20 * time.Hour))
	s.Breaker.ForceOpen(errLost)
	l.closeBreaker(t, s)
	l.now.Add(int64(4*time.Hour - time.Second))
	if l.heartbeat(t, s); !s.Settling(r) || s.settlesSoon() {
		t.Error("it does not settle for a window")
	}
	l.now.Add(int64(time.Second))
	if l.heartbeat(t, s); s.State() != Healthy {
		t.Errorf("%v a window after the loss, and hours after the outage", s.State())
	}
}

func TestMemory(t *testing.T) {
	m := &memory{}
	life := func(sequence int64) int64 { return remote.HeartbeatLife(sequence).Microseconds() }
	for i, step := range []struct {
		heard     remote.Heard
		sent      int64
		remembers bool
		since     int64
	}{
		{remote.Heard{Generation: "a", Sequence: 1, Survived: -1}, 100, true, 0},
		{remote.Heard{Generation: "a", Sequence: 2, Survived: 1}, 200, true, 0},
		{remote.Heard{Generation: "a", Sequence: 3, Survived: 2}, 300, true, 0},
		{remote.Heard{Generation: "a", Sequence: 5, Survived: 4}, 500, true, 0},    // a reply was lost
		{remote.Heard{Generation: "a", Sequence: 6, Survived: 3}, 600, false, 300}, // a replica that was behind takes over
		{remote.Heard{Generation: "a", Sequence: 7, Survived: 6}, 700, true, 0},    // and continues
		// There was no heartbeat for so long that Redis has forgotten the last one, and a failover to a replica
		// that has none.
		{remote.Heard{Generation: "a", Sequence: 8, Survived: -1, Clock: life(7)}, 800, true, 0},
		{remote.Heard{Generation: "a", Sequence: 8, Survived: -1, Clock: life(7) + life(8) - 1}, 850, false, math.MinInt64},
		{remote.Heard{Generation: "b", Sequence: 9, Survived: -1}, 900, false, math.MinInt64},
		{remote.Heard{Generation: "b", Sequence: 10, Survived: 9}, 1000, true, 0},
		{remote.Heard{Generation: "b", Sequence: 11, Survived: 2}, 1100, false, math.MinInt64},     // further back than is known
		{remote.Heard{Place: "moved", Generation: "c", Sequence: 12, Survived: -1}, 1200, true, 0}, // the fleet is elsewhere
		{remote.Heard{Place: "moved", Generation: "d", Sequence: 13, Survived: -1}, 1300, false, math.MinInt64},
		{remote.Heard{Generation: "b", Sequence: 14, Survived: 11}, 1400, true, 0}, // and back where it was
	} {
		remembers, since := m.remembers(step.heard, step.sent, step.sent, func(int64) {})
		if remembers != step.remembers || since != step.since {
			t.Errorf("step %d: %v, since %d; want %v, %d", i, remembers, since, step.remembers, step.since)
		}
	}
	for i := range int64(1000) {
		m.remembers(remote.Heard{Generation: "b", Sequence: 15 + i, Survived: 14 + i}, 1500, 1500, func(int64) {})
	}
	if len(m.heartbeats) > heartbeatsKept {
		t.Errorf("%d heartbeats are kept", len(m.heartbeats)) // law 7
	}
}

// Charges after the newest heartbeat count by the times of their grants. Charges that are answered when the loss
// is already known do not count as made.
func TestMemoryOfCharges(t *testing.T) {
	var m memory
	var forgotten []int64
	forget := func(since int64) {
		if forgotten = append(forgotten, since); m.mu.TryLock() {
			m.mu.Unlock()
			t.Error("charges may be sent after the loss is counted, but before it is known since when")
		}
	}
	m.remembers(remote.Heard{Generation: "a", Sequence: 1, Survived: -1}, 100, 100, forget)
	m.remembers(remote.Heard{Generation: "a", Sequence: 2, Survived: 1}, 200, 200, forget)
	losses := m.lossesSoFar()
	if !m.charged(50, losses) || !m.charged(0, losses) || !m.charged(150, losses) {
		t.Error("not taken for charged, though nothing was lost")
	}
	if remembers, since := m.remembers(remote.Heard{Generation: "a", Sequence: 3, Survived: 1}, 300, 300, forget); remembers || since != 50 {
		t.Errorf("a failover: %v, since %d, want 50", remembers, since)
	}
	if m.charged(60, losses) {
		t.Error("taken for charged, though Redis has lost data meanwhile")
	}
	losses = m.lossesSoFar()
	m.remembers(remote.Heard{Generation: "b", Sequence: 4, Survived: -1}, 400, 400, forget)
	if m.charged(60, losses) {
		t.Error("taken for charged, though Redis has lost all meanwhile")
	}
	if !slices.Equal(forgotten, []int64{50, math.MinInt64}) {
		t.Errorf("forgotten since %v", forgotten)
	}
}

// Charges are sent beside heartbeats, and Redis may get them in another order than that of the answers. So a replica
// that has a heartbeat may lack charges that were answered before it.
func TestMemoryOfChargesBesideTheHeartbeatThatSurvived(t *testing.T) {
	var m memory
	forget := func(int64) {}
	m.remembers(remote.Heard{Generation: "a", Sequence: 1, Survived: -1}, 100, 100, forget)
	m.charged(50, 0)
	m.remembers(remote.Heard{Generation: "a", Sequence: 2, Survived: 1}, 200, 200, forget)
	m.remembers(remote.Heard{Generation: "a", Sequence: 3, Survived: 2}, 300, 300, forget)
	if _, since := m.remembers(remote.Heard{Generation: "a", Sequence: 4, Survived: 2}, 400, 400, forget); since != 50 {
		t.Errorf("lost since %d, want 50", since)
	}
}

// While a rule settles, a Peek asks whether its units fit into this instance's share, and reserves none.
func TestPeekReservesNothing(t *testing.T) {
	l := newShards(t, 1)
	s, m := l.first, l.masters[0]
	r := newRule(t, "r", limit.PerHour(100), limit.SlidingLog())
	l.heartbeat(t, s)
	s.Learned(request(r, "k", 80), &remote.Reply{Granted: 80, Remaining: 20})
	m.heard.Generation = "another"
	l.heartbeat(t, s)
	for units, want := range map[int64]bool{1: true, 20: true, 21: false} {
		q := request(r, "k", units)
		q.Operation = lua.Peek
		own, d, ok := s.Reserve(q)
		if ok != want || own.Units != 0 {
			t.Errorf("a Peek of %d units, of which 20 are free: %v, %+v, %+v", units, ok, own, d)
		}
	}
}
