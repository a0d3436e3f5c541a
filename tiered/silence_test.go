package tiered

import (
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
)

// Law 11: shares are as of when Redis went silent, and not as of when the breaker opens; what left
// the window in between would be missing in them. A Redis that answers again is not silent.
func TestLaw11SharesAreAsOfTheSilence(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), FleetSize(4))
	s := l.shard
	l.stop() // or a heartbeat would be an answer
	l.background.Wait()
	if o := s.outage(); o.Number != 0 {
		t.Fatalf("an outage before any: %+v", o)
	}
	fails := func(took time.Duration) { s.tripEnded(1, took, remote.ErrNoAnswer) }
	const took = 50 * time.Millisecond
	before := l.now()
	fails(took)
	first := s.outage()
	if began := first.Cut + int64(took); first.Number == 0 || began < before || began > l.now() {
		t.Errorf("after one trip that failed: %+v; it was %d", first, before)
	}
	fails(took)
	if o := s.outage(); o != first {
		t.Errorf("the second one moves it: %+v, was %+v", o, first)
	}
	s.tripEnded(1, took, nil)
	if o := s.outage(); o.Number != 0 {
		t.Errorf("after an answer: %+v", o)
	}

	fails(took)
	second := s.outage()
	if second.Number == first.Number {
		t.Errorf("two silences have number %d", first.Number)
	}
	s.lost(l.now()+int64(time.Second), l.born)
	if o := s.outage(); o.Number != second.Number || o.Cut != second.Cut {
		t.Errorf("the breaker opens: %+v, Redis was silent since %+v", o, second)
	}
	s.back(l.now())
	s.tripEnded(1, took, nil)
	if o := s.outage(); o.Number != second.Number {
		t.Errorf("shares are fixed for as long as the outage settles: %+v, was %+v", o, second)
	}
	if !s.end(s.episode.Load()) {
		t.Fatal("the outage does not end")
	}
	if o := s.outage(); o.Number != 0 {
		t.Errorf("after the outage: %+v", o)
	}
}

// Where no trips are made, a heartbeat ends the silence.
func TestAHeartbeatIsAnAnswer(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	l.shard.tripEnded(1, 0, remote.ErrNoAnswer)
	eventually(t, "a heartbeat", func() bool { return l.shard.outage().Number == 0 })
}

// What is granted while Redis is silent, and not lost yet, is within the share that the outage
// will have.
func TestLaw11NothingIsAddedBetweenSilenceAndOutage(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), FleetSize(4))
	r, s := newRule(t, l, "r", limit.PerHour(100)), l.shard
	for range 40 {
		mustAllow(t, r, "k", 1)
	}
	l.stop() // or a heartbeat would be an answer
	l.background.Wait()
	s.tripEnded(1, 0, remote.ErrNoAnswer)
	granted := func() (units int) {
		for range 200 {
			units += int(r.fallback(s, l.now(), keyOf(l, "k"), 1, 0, remote.ErrNoAnswer).Granted)
		}
		return units
	}
	share := granted()
	s.lost(l.now(), l.born)
	if more := granted(); share == 0 || more != 0 {
		t.Errorf("%d units while Redis was silent, and %d more when it was lost", share, more)
	}
}
