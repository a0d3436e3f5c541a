package outage

import (
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local/ledger"
	"github.com/tierlimit/tierlimit/remote"
)

// Law 11: shares are computed as of the moment when Redis went silent, not when the breaker opens. Otherwise,
// units that left the window in between would be missing in the shares. A Redis that answers again is not silent.
func TestLaw11SharesAreAsOfTheSilence(t *testing.T) {
	l := newShards(t, 1)
	s := l.first
	l.heartbeat(t, s)
	if o := s.Outage(); o.Number != 0 {
		t.Fatalf("an outage before any: %+v", o)
	}
	fails := func(took time.Duration) { s.TripEnded(took, remote.ErrNoAnswer) }
	const took = 50 * time.Millisecond
	before := l.Now()
	fails(took)
	first := s.Outage()
	if began := first.Cut + int64(took); first.Number == 0 || began < before || began > l.Now() {
		t.Errorf("after one trip that failed: %+v; it was %d", first, before)
	}
	fails(took)
	if o := s.Outage(); o != first {
		t.Errorf("the second one moves it: %+v, was %+v", o, first)
	}
	s.TripEnded(took, nil)
	if o := s.Outage(); o.Number != 0 {
		t.Errorf("after an answer: %+v", o)
	}

	fails(took)
	second := s.Outage()
	if second.Number == first.Number {
		t.Errorf("two silences have number %d", first.Number)
	}
	s.beginOutage(l.Now() + int64(time.Second))
	if o := s.Outage(); o.Number != second.Number || o.Cut != second.Cut {
		t.Errorf("the breaker opens: %+v, Redis was silent since %+v", o, second)
	}
	s.update(func(e *incident) { e.isBack(l.Now()) })
	s.TripEnded(took, nil)
	if o := s.Outage(); o.Number != second.Number {
		t.Errorf("shares are fixed for as long as the outage settles: %+v, was %+v", o, second)
	}
	endNow(s)
	if o := s.Outage(); o.Number != 0 {
		t.Errorf("after the outage: %+v", o)
	}
	// If no trips are made, a heartbeat counts as an answer.
	fails(took)
	if l.heartbeat(t, s); s.Outage().Number != 0 {
		t.Errorf("after a heartbeat: %+v", s.Outage())
	}
}

// Grants while Redis is silent, but not lost yet, are within the share that the outage will have.
func TestLaw11NothingIsAddedBetweenSilenceAndOutage(t *testing.T) {
	l := newShards(t, 1)
	r, s := newRule(t, "r", limit.PerHour(100), limit.SlidingLog()), l.first
	l.masters[0].heard.Size = 4
	l.heartbeat(t, s)
	for i := range int64(40) {
		s.Learned(request(r, "k", 1), &remote.Reply{Granted: 1, Remaining: 99 - i})
	}
	s.TripEnded(0, remote.ErrNoAnswer)
	granted := func() (units int) {
		for range 200 {
			units += int(without(s, request(r, "k", 1), l.Now(), remote.ErrNoAnswer).Granted)
		}
		return units
	}
	share := granted()
	s.beginOutage(l.Now())
	if more := granted(); share == 0 || more != 0 {
		t.Errorf("%d units while Redis was silent, and %d more when it was lost", share, more)
	}
}

// The share of a process that began without Redis grows from the moment it began, in a silence as in the outage
// that follows. When Redis has reported the fleet's size, the assumed size still counts, because those instances
// may come back.
func TestSharesOfAProcessThatBeganWithoutRedis(t *testing.T) {
	l := newShards(t, 1)
	s := l.first
	l.ColdStart.Lasts, l.masters[0].heard.Size = minute, 3
	if o := s.Outage(); o != (ledger.Outage{Fleet: 3}) {
		t.Errorf("while Redis decides: %+v", o)
	}
	l.now.Add(int64(time.Second))
	s.TripEnded(time.Millisecond, errLost)
	silent := s.Outage()
	if want := (ledger.Outage{Number: 1, Cut: l.Now() - int64(time.Millisecond), Fleet: 3, ColdStart: &l.ColdStart}); silent != want {
		t.Errorf("in a silence: %+v, want %+v", silent, want)
	}
	s.Breaker.ForceOpen(errLost)
	if o := s.Outage(); o != silent {
		t.Errorf("in the outage: %+v, in the silence before %+v", o, silent)
	}
	l.heartbeat(t, s)
	silent.Fleet = l.Assumed
	if o := s.Outage(); o != silent {
		t.Errorf("after a heartbeat: %+v, want %+v", o, silent)
	}
}

// ruleOf returns a rule of the given window.
func ruleOf(window time.Duration) *Rule { return &Rule{Name: "r", Limit: limit.Per(1, window)} }

// Law 11: an incident may last for days. If Redis is lost again meanwhile, the shares of rules that had stopped settling
// are fixed anew, as of the present loss, and under the number that they had in the silence before it. Rules that were
// still settling keep their shares.
func TestLaw11RulesThatStoppedSettlingHaveNewShares(t *testing.T) {
	l := newShards(t, 1)
	s := l.first
	l.Windows.Add(24 * time.Hour)
	l.heartbeat(t, s)
	s.beginOutage(l.Now())
	first := s.Outage()
	number := func(window time.Duration) uint32 { return s.OutageOf(ruleOf(window)).Number }
	loseAgain := func(after time.Duration) uint32 {
		s.update(func(e *incident) { e.isBack(l.Now()) })
		s.TripEnded(0, nil)
		l.now.Add(int64(after))
		s.TripEnded(0, remote.ErrNoAnswer)
		silent := number(after)
		s.beginOutage(l.Now())
		if now := s.OutageOf(ruleOf(after)); now.Number != silent || now.Number == first.Number || now.Cut <= first.Cut {
			t.Errorf("%+v after %v with Redis, and %d in the silence before", now, after, silent)
		}
		return silent
	}
	hour := loseAgain(time.Hour)
	if o := s.OutageOf(ruleOf(time.Hour + 1)); o.Number != first.Number || s.Outage().Number != first.Number {
		t.Errorf("it was still settling, and has %+v", o)
	}
	minutes := loseAgain(time.Minute)
	if number(time.Minute+1) != hour || number(time.Hour+1) != first.Number {
		t.Errorf("they were still settling, and have %d and %d", number(time.Minute+1), number(time.Hour+1))
	}
	if later := loseAgain(2 * time.Minute); number(time.Second) != later || later == minutes {
		t.Errorf("a short window has %d, want %d", number(time.Second), later)
	}
	// It is the same if Redis is not lost, but loses its data again.
	s.update(func(e *incident) { e.isBack(l.Now()) })
	s.TripEnded(0, nil)
	l.now.Add(int64(time.Hour))
	before := s.Outage()
	s.dataLost(0, 0)
	if now := s.OutageOf(ruleOf(time.Hour)); now.Number == hour || now.Number == before.Number || now.Cut != l.Now() || s.Outage().Number != before.Number {
		t.Errorf("after another loss of memory: %+v, before it %+v", now, before)
	}
	for i := range 2 * renewalsKept {
		loseAgain(time.Minute - time.Duration(i)*time.Second)
	}
	if kept := len(s.incident.Load().renewed); kept > renewalsKept {
		t.Errorf("%d renewals are kept", kept)
	}
}

// Law 11: an incident may last for days, in which a fleet grows. If Redis is lost again, all instances count that it had
// then, also when Redis is back and has not heard of them yet. Instances that left long before that do not count.
func TestLaw11TheFleetOfALaterLossCounts(t *testing.T) {
	l := newShards(t, 1)
	s, m := l.first, l.masters[0]
	fleet := func(size int) {
		m.heard.Size = size
		l.heartbeat(t, s)
	}
	fleet(2)
	s.dataLost(0, 0)
	check := func(when string, want int) {
		t.Helper()
		for _, window := range []time.Duration{time.Second, time.Minute, 24 * time.Hour} {
			if o := s.OutageOf(ruleOf(window)); o.Fleet != want {
				t.Errorf("%s, window of %v: %d instances share a limit, want %d", when, window, o.Fleet, want)
			}
		}
	}
	loseAgain := func(after time.Duration, size int) {
		t.Helper()
		l.now.Add(int64(after))
		fleet(size)
		s.beginOutage(l.Now())
		s.update(func(e *incident) { e.isBack(l.Now()) })
		fleet(1)
	}
	loseAgain(time.Hour, 8)
	check("back first of eight", 8)
	l.now.Add(int64(2 * time.Second))
	check("once a short rule has stopped settling", 8)
	loseAgain(FleetTTL-1-2*time.Second, 1)
	check("back again before the others", 8)
	loseAgain(FleetTTL, 3)
	check("five have left", 3)
	loseAgain(time.Second, 5)
	check("two more have joined", 5)
}
