package outage

import (
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
)

// A loss that is reported for all rules counts for each rule, until the lost units have left the rule's window.
func TestLosses(t *testing.T) {
	e := &incident{back: 1}
	settles := func(rule string, now int64) bool { return e.settles(rule, time.Hour, now) }
	if !settles("r", 2) {
		t.Error("not before all have charged")
	}
	e.allCharged = true
	if settles("r", 2) {
		t.Error("r settles though nothing is lost")
	}
	e.lostRecords = map[string]int64{"r": 12}
	if !settles("r", 11) || settles("r", 12) || settles("another", 11) {
		t.Errorf("%v, %v, %v", settles("r", 11), settles("r", 12), settles("another", 11))
	}
	e.lostRecords = map[string]int64{remote.AnyRule: 30}
	if !settles("r", 29) || !settles("another", 29) || settles("r", 30) {
		t.Errorf("%v, %v, %v", settles("r", 29), settles("another", 29), settles("r", 30))
	}
	if !e.settles("r", 29, 29) || e.settles("r", 28, 29) {
		t.Error("it does not end with the rule's window")
	}
}

// Law 11: once all instances have charged, only rules whose records were lost settle. Heartbeats name these
// rules. An outage after that is a new one.
func TestLaw11OnlyWhatIsLostSettles(t *testing.T) {
	l := newShards(t, 1)
	s, m := l.first, l.masters[0]
	flooded, other := newRule(t, "flooded", limit.PerDay(100), limit.SlidingLog()), newRule(t, "other", limit.PerDay(100), limit.SlidingLog())
	flooded.Number, other.Number = l.Ledger.RuleNumber("flooded"), l.Ledger.RuleNumber("other")
	l.heartbeat(t, s)
	s.Breaker.ForceOpen(errLost)
	for i := range 10_000 {
		without(s, request(flooded, remote.UserKey(time.Duration(i).String()), 1), l.Now(), errLost)
	}
	without(s, request(other, "k", 1), l.Now(), errLost)
	first := s.Outage().Number
	l.closeBreaker(t, s)
	if !s.Settling(flooded) || !s.Settling(other) {
		t.Fatal("not all rules settle at first")
	}
	for s.Owes() {
		s.chargeSome()
	}
	l.now.Add(int64(settleAtLeast))
	if l.heartbeat(t, s); !s.Settling(flooded) || s.Settling(other) || s.State() != Settling {
		t.Errorf("the flooded rule settles: %v, the other: %v, %v", s.Settling(flooded), s.Settling(other), s.State())
	}
	if n := len(m.told); n != 1 || m.told[0].Rule != "flooded" {
		t.Errorf("told %+v", m.told)
	}
	if s.OutageOf(other).Number != 0 || s.OutageOf(flooded).Number != first {
		t.Errorf("outages %+v and %+v", s.OutageOf(other), s.OutageOf(flooded))
	}
	s.Breaker.ForceOpen(errLost)
	if o := s.OutageOf(other); o.Number == first || !s.Settling(other) {
		t.Errorf("the next outage: %+v", o)
	}
	l.closeBreaker(t, s)
	l.now.Add(int64(48 * time.Hour))
	if l.heartbeat(t, s); s.State() != Healthy {
		t.Errorf("%v two windows later", s.State())
	}
}
