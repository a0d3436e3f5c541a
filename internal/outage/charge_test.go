package outage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local/ledger"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// Law 11: under GCRA, only the remaining debt of units granted in an outage is charged, as computed from this instance's
// share of the rate. Units that have been paid off meanwhile leave no debt. Units granted since Redis decides are charged
// in full.
func TestGCRADebts(t *testing.T) {
	r := newRule(t, "r", limit.Per(1000, 100*time.Second), limit.GCRA())
	const second = int64(time.Second)
	parts := []ledger.Part{{Units: 80, At: 100 * second}, {Units: 30, At: 110 * second}}
	for _, test := range []struct {
		share   float64
		fleet   int
		at      int64
		decides int64
		want    int64
	}{
		{1, 9, 110, 110, 30}, {1, 9, 112, 200, 10}, {1, 9, 113, 200, 0}, {0.5, 9, 110, 200, 60}, {0, 4, 110, 200, 85}, {0, 4, 130, 200, 35},
		{1, 9, 112, 110, 30}, {0.5, 9, 112, 110, 50}, {0, 4, 130, 110, 35}, {1, 9, 130, 100, 110}, {1, 9, 130, 0, 110},
	} {
		d := ledger.Debt[*Rule]{Owner: r, Key: "k", Share: test.share, Parts: parts}
		units := int64(0)
		for _, c := range r.chargesFor(d, test.at*second, test.decides*second, test.fleet) {
			units += c.Units
			if c.Age != 0 || c.Units == 0 {
				t.Errorf("%+v: %d units of age %v", test, c.Units, c.Age)
			}
		}
		if units != test.want {
			t.Errorf("%+v: %d units", test, units)
		}
	}
}

// Law 11: in a long window, units do not count as older than the outage in which they were granted. A sixteenth
// of a month is two days, in which GCRA pays off many units.
func TestLaw11ChargesAreNoOlderThanTheirOutage(t *testing.T) {
	for _, a := range []limit.Algorithm{limit.GCRA(), limit.SlidingLog(), limit.SlidingCounter(16, limit.Strict)} {
		l := newShards(t, 1)
		s, m := l.first, l.masters[0]
		l.heartbeat(t, s)
		const window = 30 * 24 * time.Hour
		l.now.Store(1000*int64(window) + int64(window/20)) // within a sub-window
		r := newRule(t, "r", limit.Per(50_000, window), a)
		for range 5 {
			if d := without(s, request(r, "k", 10), l.Now(), errLost); !d.Allowed {
				t.Fatalf("%v: %+v", a, d)
			}
			l.now.Add(int64(time.Second))
		}
		s.chargeSome()
		if m.units() != 50 {
			t.Errorf("%v: %d units charged of 50: %+v", a, m.units(), m.charged)
		}
		for _, e := range m.charged {
			for _, c := range e.Charges {
				if c.Age > 5*time.Second {
					t.Errorf("%v: units of the last 5 s are said to be %v old", a, c.Age)
				}
			}
		}
	}
}

// Law 11: if a rule is changed in an outage, units granted afterwards are charged under the new rule, together
// with all units in the key's record. GCRA's debt of units that a log has granted would be paid off long before
// they leave the window, and the log would grant them again.
func TestLaw11ARuleIsChangedInAnOutage(t *testing.T) {
	for name, c := range map[string]struct {
		quota int64
		after time.Duration
	}{
		"another limit":                 {60, 10 * minute},
		"another algorithm, in no time": {200, 0}, // while units are free that are granted without a look at the record
	} {
		t.Run(name, func(t *testing.T) { checkChangedInAnOutage(t, c.quota, c.after) })
	}
}

func checkChangedInAnOutage(t *testing.T, quota int64, after time.Duration) {
	l := newShards(t, 1)
	s, m := l.first, l.masters[0]
	l.heartbeat(t, s)
	old := newRule(t, "r", limit.PerHour(200), limit.GCRA())
	r := newRule(t, "r", limit.PerHour(quota), limit.SlidingLog())
	s.Breaker.ForceOpen(errLost)
	grant := func(r *Rule, units int64) {
		t.Helper()
		if d := without(s, request(r, "k", units), l.Now(), errLost); !d.Allowed {
			t.Fatalf("%+v", d)
		}
	}
	grant(old, 40)
	l.now.Add(int64(after))
	grant(r, 20)
	l.now.Add(int64(20 * minute))
	l.closeBreaker(t, s)
	for s.Owes() {
		s.chargeSome()
	}
	if len(m.charged) != 1 || m.units() != 60 || m.charged[0].Rule != r.Encoded {
		t.Errorf("charged %+v, want 60 units under the log", m.charged)
	}
}

// onRedis makes a shard charge in a real Redis, and returns a function that makes rules there.
func onRedis(t *testing.T, s *Shard) (newRuleThere func(name string, lim limit.Limit, a limit.Algorithm) *Rule) {
	t.Helper()
	client := redistest.Start(t).Client(t)
	keys, err := remote.NewKeyspace(redistest.Prefix())
	if err != nil {
		t.Fatal(err)
	}
	b := remote.NewBatcher(remote.NewScript(client), remote.Options{Deadline: 5 * time.Second, MaxBatch: 128, MaxWork: 100_000, InFlight: 8, Queue: 1000},
		remote.Hooks{Begin: func() (func(error), error) { return func(error) {}, nil }, Trip: func(int, time.Duration, error) {}})
	t.Cleanup(b.Close)
	s.Decider = b
	return func(name string, lim limit.Limit, a limit.Algorithm) *Rule {
		r := newRule(t, name, lim, a)
		r.Encoded = r.Encoded.Named(keys, name, nil)
		return r
	}
}

// remainingOf returns how many units of a key are left in a real Redis.
func remainingOf(t *testing.T, s *Shard, r *Rule, key string) int64 {
	t.Helper()
	reply, err := s.Decide(t.Context(), remote.Entry{Key: key, Rule: r.Encoded, Operation: lua.Peek, Cost: 1})
	if err != nil {
		t.Fatal(err)
	}
	return reply.Remaining
}

// Law 3: in a real Redis, charges whose replies were lost are made once.
func TestLaw3ChargesAreMadeOnce(t *testing.T) {
	l := newShards(t, 1)
	s := l.first
	newRuleThere := onRedis(t, s)
	for _, a := range limit.Algorithms() {
		r := newRuleThere(a.Name(), limit.PerHour(1000).WithBurst(1000), a)
		remaining := func() int64 { return remainingOf(t, s, r, "k") }
		before := remaining()
		made := func(sequence int64, repeated bool) {
			t.Helper()
			d := ledger.Debt[*Rule]{Owner: r, Key: "k", Parts: []ledger.Part{{Units: 7, At: l.Now()}}}
			if unanswered, refused := s.charge([]*charge{{Debt: d, sequence: sequence, repeated: repeated}}); unanswered || refused[d.Group] || len(l.charges.out) > 0 {
				t.Fatalf("%v: not charged: %+v, refused: %v", a, l.charges.out, refused)
			}
		}
		made(5, false)
		counted := l.Counts.Charged.Load()
		made(5, true) // as if the first answer had been lost
		if counted = l.Counts.Charged.Load() - counted; counted != 7 {
			t.Errorf("%v: a charge whose answer was lost counts %v units when it is found to be made, want 7", a, counted)
		}
		if n := remaining(); n != before-7 {
			t.Errorf("%v: %d remain of %d, want 7 less", a, n, before)
		}
		made(6, false)
		if n := remaining(); n != before-14 {
			t.Errorf("%v: %d remain of %d after another charge, want 14 less", a, n, before)
		}
	}
}

// Law 3: a batch whose answer is lost is sent again under the same sequence number. The units stay owed until it
// is answered.
func TestLaw3ALostAnswerIsAskedForAgain(t *testing.T) {
	l := newShards(t, 1)
	s, m := l.first, l.masters[0]
	l.heartbeat(t, s)
	r := newRule(t, "r", limit.PerHour(100), limit.SlidingLog())
	without(s, request(r, "k", 7), l.Now(), errLost)
	m.err = remote.ErrNoAnswer
	if pause := s.chargeSome(); pause == 0 || !s.Owes() {
		t.Errorf("pause %v, owes %v", pause, s.Owes())
	}
	m.err = nil
	if s.chargeSome(); s.Owes() || m.units() != 14 || m.charged[0].Sequence != m.charged[1].Sequence {
		t.Errorf("owes %v, was sent %+v", s.Owes(), m.charged)
	}
	if s.chargeSome() != 0 {
		t.Error("there is more to be charged")
	}
}

// A key that was reset is not charged afterwards with what it was granted without Redis, whether that is still in the
// journal, its charge is pending, or is just being sent. In the last case, Reset says when the charge is over. The
// charges of other keys, and of the key under other rules, are made.
func TestChargesOfAKeyThatIsReset(t *testing.T) {
	r, other := newRule(t, "r", limit.PerHour(100), limit.SlidingLog()), newRule(t, "other", limit.PerHour(100), limit.SlidingLog())
	for name, answer := range map[string]error{
		"in the journal": nil, "pending": remote.ErrNoAnswer, "being sent": nil, "being sent, and lost": remote.ErrNoAnswer, "being sent, and not made": errLost,
	} {
		t.Run(name, func(t *testing.T) {
			l := newShards(t, 1)
			s, m := l.first, l.masters[0]
			l.heartbeat(t, s)
			q := request(r, "k", 7)
			without(s, q, l.Now(), errLost)
			without(s, request(r, "another", 5), l.Now(), errLost)
			without(s, request(other, "k", 3), l.Now(), errLost)
			var charging <-chan struct{}
			sending := strings.HasPrefix(name, "being sent")
			if sending {
				m.after = func() {
					charging = s.Reset(q)
					select {
					case <-charging:
						t.Error("the charge is over before it is answered")
					default:
					}
				}
			}
			m.err = answer
			if name != "in the journal" {
				s.chargeSome()
			}
			if m.err = nil; !sending {
				charging = s.Reset(q)
			}
			if sending != (charging != nil) {
				t.Fatalf("a charge is being sent: %v, want %v", charging != nil, sending)
			}
			if sending {
				<-charging
			}
			before := len(m.charged)
			for s.Owes() {
				s.chargeSome()
			}
			for _, e := range m.charged[before:] {
				if e.Key == "k" && e.Rule == r.Encoded {
					t.Errorf("charged after the reset: %+v", e)
				}
			}
			if name == "being sent" { // and was made at once
				before = 0
			}
			for what, of := range map[string]remote.Entry{"another key": {Key: "another", Rule: r.Encoded}, "another rule": {Key: "k", Rule: other.Encoded}} {
				if !slices.ContainsFunc(m.charged[before:], func(e remote.Entry) bool { return e.Key == of.Key && e.Rule == of.Rule }) {
					t.Errorf("%s was not charged", what)
				}
			}
			if n := l.Uncharged(); n != 0 {
				t.Errorf("%d units are not charged", n)
			}
		})
	}
}

// Law 3: charges that were certainly not sent, because Redis is lost again, are made after the next outage,
// however long it lasts. They need not be given up, unlike charges that Redis may have made and forgotten.
func TestLaw3ChargesThatWereNotSent(t *testing.T) {
	l := newShards(t, 1)
	s, m := l.first, l.masters[0]
	l.heartbeat(t, s)
	r := newRule(t, "r", limit.PerHour(100), limit.SlidingLog())
	l.Ledger.RuleNumber(r.Name)
	without(s, request(r, "k", 7), l.Now(), errLost)
	m.refuses(errLost, []remote.UserKey{"k"})
	if pause := s.chargeSome(); pause < ProbeEvery || !s.Owes() || l.Uncharged() != 7 {
		t.Errorf("pause %v, owes %v, %d units are not charged", pause, s.Owes(), l.Uncharged())
	}
	l.now.Add(2 * givenUpAfter)
	m.refuses(nil, []remote.UserKey{"k"})
	for s.Owes() {
		s.chargeSome()
	}
	if m.units() != 7 || s.lostRules() != nil {
		t.Errorf("%d units charged, lost %v; want 7", m.units(), s.lostRules())
	}
}

// Law 3: after a change of the rule's window, a key has two records and may owe units under both. Redis
// identifies a key's charges by the sequence number of the newest one, so these two must have different numbers.
func TestLaw3AKeyOwesUnderTwoWindows(t *testing.T) {
	l := newShards(t, 1)
	s := l.first
	l.heartbeat(t, s)
	newRuleThere := onRedis(t, s)
	old, r := newRuleThere("r", limit.PerHour(100), limit.SlidingLog()), newRuleThere("r", limit.PerDay(500), limit.SlidingLog())
	without(s, request(old, "k", 7), l.Now(), errLost)
	without(s, request(r, "k", 20), l.Now(), errLost)
	without(s, request(r, "another", 5), l.Now(), errLost)
	for s.Owes() {
		s.chargeSome()
	}
	for key, want := range map[string]int64{"k": 473, "another": 495} {
		if n := remainingOf(t, s, r, key); n != want {
			t.Errorf("%d of 500 remain of %q, want %d", n, key, want)
		}
	}
}

// Law 3: charges whose answers were lost are repeated by the shard to which their slot has moved, before newer
// charges of the slot. A master that has lost its slots is no longer probed, so its own shard might never repeat
// them.
func TestLaw3PendingChargesMoveWithTheirSlot(t *testing.T) {
	l := newShards(t, 0)
	l.reroute(mastersOf(map[string][]int{"a": ranges(0, 8), "b": ranges(8, 16)}))
	a, b := l.ofSlot(0), l.ofSlot(8)
	ma, mb := l.masters[a.index], l.masters[b.index]
	r := newRule(t, "r", limit.PerHour(100), limit.SlidingLog())
	key := l.keysOf(3, 1)[0]
	l.heartbeat(t, a)
	l.heartbeat(t, b)
	without(a, request(r, key, 7), l.Now(), errLost)
	ma.err = remote.ErrNoAnswer
	a.chargeSome()
	a.Breaker.ForceOpen(errLost)
	if b.chargeSome(); len(mb.charged) > 0 {
		t.Errorf("b was told what a lost master may have charged: %+v", mb.charged)
	}
	l.reroute(mastersOf(map[string][]int{"b": ranges(0, 16)}))
	if a.Owes() || !b.Owes() || l.Uncharged() != 7 {
		t.Errorf("a owes: %v, b owes: %v, %d units are not charged", a.Owes(), b.Owes(), l.Uncharged())
	}
	without(b, request(r, key, 5), l.Now(), remote.ErrNoRoom)
	for range 3 {
		a.chargeSome()
		b.chargeSome()
	}
	if b.Owes() || l.Uncharged() != 0 || len(ma.charged) != 1 {
		t.Fatalf("b owes: %v, %d units are not charged, and a was told %+v", b.Owes(), l.Uncharged(), ma.charged)
	}
	mb.checkChargedOnce(t, map[remote.UserKey]int64{key: 12})
	if mb.charged[0].Sequence != ma.charged[0].Sequence {
		t.Errorf("repeated with sequence %d, want %d", mb.charged[0].Sequence, ma.charged[0].Sequence)
	}
}

// Units are owed at all times while charges are taken out of the journal and put back, because Redis is lost
// again. Otherwise, a heartbeat at that moment would tell the fleet that this instance has settled.
func TestUnitsAreOwedAtAllTimes(t *testing.T) {
	l := newShards(t, 1)
	s, m := l.first, l.masters[0]
	r := newRule(t, "r", limit.PerHour(100), limit.SlidingLog())
	without(s, request(r, "k", 7), l.Now(), errLost)
	m.refuses(errLost, []remote.UserKey{"k"})
	var charging sync.WaitGroup
	var stop atomic.Bool
	charging.Go(func() {
		for !stop.Load() {
			s.chargeSome()
		}
	})
	for range 20_000 {
		if units := l.Uncharged(); !s.Owes() || units != 7 {
			t.Errorf("nothing is owed, or %d units instead of 7", units)
			break
		}
	}
	stop.Store(true)
	charging.Wait()
}

// Law 11: an instance may find that it owes nothing, but record that only after another outage. It then owes the
// units that it granted in that outage, and does not count as settled.
func TestLaw11NothingIsOwedBeforeAnotherOutage(t *testing.T) {
	l := newShards(t, 1)
	s := l.first
	r := newRule(t, "r", limit.PerHour(100), limit.SlidingLog())
	l.heartbeat(t, s)
	s.Breaker.ForceOpen(errLost)
	l.closeBreaker(t, s)
	back := s.incident.Load().back
	if s.Owes() {
		t.Fatal("it owes something before it has granted anything")
	}
	s.Breaker.ForceOpen(errLost)
	without(s, request(r, "k", 7), l.Now(), errLost)
	l.now.Add(int64(time.Second))
	l.closeBreaker(t, s)
	if s.hasRepaid(back); !s.isUnsettled() {
		t.Error("it counts as settled though it owes what it granted in the outage")
	}
	for s.owesNow() {
		s.chargeSome()
	}
	if s.isUnsettled() {
		t.Error("it does not count as settled when it has charged all")
	}
}

// ChargeRest stops waiting when the limiter is closed, because nothing is charged after that.
func TestChargeRestOfAClosedLimiter(t *testing.T) {
	l := newShards(t, 1)
	s := l.first
	without(s, request(newRule(t, "r", limit.PerHour(100), limit.SlidingLog()), "k", 7), l.Now(), errLost)
	ctx, stop := context.WithCancel(t.Context())
	l.Context = ctx
	stop()
	within, cancel := context.WithTimeout(t.Context(), minute)
	defer cancel()
	if err := l.ChargeRest(within, true); !errors.Is(err, limit.ErrClosed) {
		t.Error(err)
	}
}

// tryAgain is the answer of a Cluster's node about keys whose slot is moving.
type tryAgain struct{}

func (tryAgain) Error() string { return "TRYAGAIN Multiple keys request during rehashing of slot" }
func (tryAgain) RedisError()   {}

// newSlots returns the shard of a Cluster's only master.
func newSlots(t *testing.T) (l *testShards, s *Shard, m *master) {
	t.Helper()
	l = newShards(t, 0)
	l.reroute(mastersOf(map[string][]int{"a": ranges(0, 16)}))
	l.heartbeat(t, l.first)
	return l, l.first, l.masters[0]
}

// keysOf returns n keys of the given sixteenth of the slots, which all have the same slot.
func (l *testShards) keysOf(sixteen, n int) (keys []remote.UserKey) {
	for i := 0; len(keys) < n; i++ {
		if key := remote.UserKey(fmt.Sprint(i)); int(l.Slot(key))/sixteenth == sixteen {
			keys = append(keys, key)
		}
	}
	return keys
}

// refuses makes the master refuse charges to the keys with the error, or accept them again if it is nil.
func (m *master) refuses(err error, keys []remote.UserKey) {
	if m.refused == nil {
		m.refused = make(map[string]error)
	}
	for _, key := range keys {
		m.refused[string(key)] = err
	}
}

// checkChargedOnce checks that each key was charged the given units, each time with a higher sequence number.
func (m *master) checkChargedOnce(t *testing.T, want map[remote.UserKey]int64) {
	t.Helper()
	units, last := map[remote.UserKey]int64{}, map[string]int64{}
	for _, e := range m.charged {
		if e.Sequence <= last[e.Key] {
			t.Errorf("%q is charged with sequence %d after %d, which Redis takes for a repetition", e.Key, e.Sequence, last[e.Key])
		}
		last[e.Key] = e.Sequence
		for _, c := range e.Charges {
			units[remote.UserKey(e.Key)] += c.Units
		}
	}
	if !maps.Equal(units, want) {
		t.Errorf("charged %v, want %v", units, want)
	}
}

// chargeFor charges for the given time. A batch and its pause take a millisecond of it. chargeFor checks that no
// batch is too large, and that none has a key twice.
func (l *testShards) chargeFor(t *testing.T, d time.Duration) {
	t.Helper()
	m := l.masters[0]
	for end := l.Now() + int64(d); l.Now() < end; {
		charged, refused := len(m.charged), sum(m.turned)
		pause := int64(l.first.chargeSome())
		batch := map[string]bool{}
		for _, e := range m.charged[charged:] {
			batch[e.Key] = true
		}
		charged, refused = len(m.charged)-charged, sum(m.turned)-refused
		if charged != len(batch) || charged+refused > chargedAtOnce {
			t.Fatalf("a batch has %d charges of %d keys, and %d that are refused", charged, len(batch), refused)
		}
		switch {
		case pause == 0:
			pause = end - l.Now()
		case charged+refused > 0: // otherwise, the pause would depend on the machine
			pause = int64(time.Millisecond)
		}
		l.now.Add(min(pause, end-l.Now()))
	}
}

func sum(numbers map[string]int) (all int) {
	for _, n := range numbers {
		all += n
	}
	return all
}

// Law 3: charges to keys whose slot is moving wait until it has moved, for five minutes at most, and are then
// made once. Charges to other keys do not wait for them, however many there are.
func TestLaw3ChargesOfASlotThatMoves(t *testing.T) {
	l, s, m := newSlots(t)
	r := newRule(t, "r", limit.PerHour(100), limit.SlidingLog())
	l.Ledger.RuleNumber(r.Name)
	want := map[remote.UserKey]int64{}
	grant := func(units int64, keys ...remote.UserKey) {
		for _, key := range keys {
			without(s, request(r, key, units), l.Now(), errLost)
			want[key] += units
		}
	}
	stuck, free := l.keysOf(3, 5*chargedAtOnce), l.keysOf(4, 100)
	m.refuses(tryAgain{}, stuck)
	grant(2, stuck...)
	grant(1, free...)
	l.chargeFor(t, 20*time.Millisecond)
	if m.units() != int64(len(free)) || !s.Owes() || l.Uncharged() != 2*int64(len(stuck)) {
		t.Fatalf("%d units charged, %d not, owes %v; want all but those of the slot that is moving", m.units(), l.Uncharged(), s.Owes())
	}
	l.chargeFor(t, 3*time.Second)
	if batches := 3*4 + 2; sum(m.turned) > batches*chargedAtOnce || len(m.turned) != len(stuck) {
		t.Errorf("%d charges of %d keys were refused in 3 s, want those of all %d, in %d batches at most", sum(m.turned), len(m.turned), len(stuck), batches)
	}
	grant(1, free[0])
	grant(5, stuck[0])
	l.chargeFor(t, 2*time.Millisecond)
	if m.units() != int64(len(free)+1) {
		t.Errorf("%d units charged, want one more than %d at once", m.units(), len(free))
	}
	m.refuses(nil, stuck)
	l.chargeFor(t, ProbeEvery+20*time.Millisecond)
	if s.Owes() || l.Uncharged() != 0 {
		t.Errorf("%d units are still not charged", l.Uncharged())
	}
	m.checkChargedOnce(t, want)

	// Charges to slots that never stop moving are given up, each after its own time.
	m.refuses(tryAgain{}, stuck)
	grant(1, stuck[0])
	l.chargeFor(t, time.Millisecond)
	s.Returned(request(r, stuck[0], 1), ledger.Oldest, 1, true) // so that nothing is owed any more
	l.chargeFor(t, time.Second)
	l.now.Add(givenUpAfter)
	grant(1, stuck...)
	l.chargeFor(t, time.Second)
	l.now.Add(givenUpAfter - int64(2*time.Second))
	if l.chargeFor(t, time.Second/2); !s.Owes() || s.lostRules() != nil {
		t.Errorf("owes %v, and has lost records of %v before five minutes are over", s.Owes(), s.lostRules())
	}
	if l.chargeFor(t, time.Second); s.Owes() || len(s.lostRules()) != 1 {
		t.Errorf("owes %v, and has lost records of %v; want those of a slot that does not stop moving to be given up", s.Owes(), s.lostRules())
	}
}

// Law 3: the five minutes begin anew for a slot of which nothing was left to charge meanwhile, although charges of
// other slots still wait.
func TestLaw3ASlotThatMovesAgain(t *testing.T) {
	l, s, m := newSlots(t)
	short := newRule(t, "short", limit.Per(100, time.Second), limit.SlidingLog())
	long := newRule(t, "long", limit.PerHour(100), limit.SlidingLog())
	first, second, third := l.keysOf(2, 1), l.keysOf(3, 1), l.keysOf(4, 1)
	grant := func(r *Rule, key remote.UserKey, units int64) { without(s, request(r, key, units), l.Now(), errLost) }
	for _, keys := range [][]remote.UserKey{first, second, third} {
		m.refuses(tryAgain{}, keys)
	}
	grant(short, first[0], 1)
	grant(long, second[0], 1)
	l.chargeFor(t, 4*time.Minute)
	grant(long, third[0], 1)
	m.refuses(nil, second)
	l.chargeFor(t, 2*time.Minute)
	grant(long, first[0], 7)
	l.chargeFor(t, 3*time.Minute-time.Second)
	if l.Uncharged() != 8 || s.lostRules() != nil {
		t.Errorf("%d units are owed, and records of %v are lost; want 8 units in two slots that have moved for less than five minutes", l.Uncharged(), s.lostRules())
	}
	m.refuses(nil, first)
	m.refuses(nil, third)
	l.chargeFor(t, time.Second)
	m.checkChargedOnce(t, map[remote.UserKey]int64{first[0]: 7, second[0]: 1, third[0]: 1})
}

// Law 3: if the answer to a charge was lost, and its slot is moving when the charge is repeated, it is repeated
// under its sequence number before newer charges to its key are sent. Other charges do not wait for it, however
// many there are.
func TestLaw3LostAnswersOfSlotsThatMove(t *testing.T) {
	l, s, m := newSlots(t)
	r := newRule(t, "r", limit.PerHour(100), limit.SlidingLog())
	l.Ledger.RuleNumber(r.Name)
	grant := func(units int64, keys ...remote.UserKey) {
		for _, key := range keys {
			without(s, request(r, key, units), l.Now(), errLost)
		}
	}
	const slots, keys = 4, chargedAtOnce / 2
	var moving []remote.UserKey
	for slot := range slots {
		of := l.keysOf(slot, keys)
		moving = append(moving, of...)
		grant(2, of...)
		m.err = remote.ErrNoAnswer
		l.chargeFor(t, time.Millisecond)
		m.err = nil
		m.refuses(tryAgain{}, of)
		l.chargeFor(t, time.Millisecond)
	}
	if len(m.charged) != len(moving) {
		t.Fatalf("%d charges were sent whose answers are lost, want %d", len(m.charged), len(moving))
	}
	first := map[string]int64{}
	for _, e := range m.charged {
		first[e.Key] = e.Sequence
	}
	m.charged = nil
	other := l.keysOf(slots, 1)
	grant(1, append(other, moving...)...)
	l.chargeFor(t, time.Second)
	if len(m.charged) != 1 || m.charged[0].Key != string(other[0]) || l.Uncharged() != int64(3*len(moving)) {
		t.Errorf("charged %+v, and %d units not; want that of the other key", m.charged, l.Uncharged())
	}
	m.charged = nil
	for slot := range slots {
		m.refuses(nil, moving[slot*keys:(slot+1)*keys])
		l.chargeFor(t, 2*time.Second)
		if want := keys * (slot + 1); len(m.charged) != 2*want || l.Uncharged() != int64(3*(len(moving)-want)) {
			t.Errorf("%d charges when %d slots have moved, want %d", len(m.charged), slot+1, 2*want)
		}
	}
	for _, e := range m.charged {
		was, known := first[e.Key]
		switch units := e.Charges[0].Units; {
		case known && (e.Sequence != was || units != 2), !known && units != 1:
			t.Errorf("%q: %d units with sequence %d; want 2 with %d, and then one with another", e.Key, units, e.Sequence, was)
		}
		delete(first, e.Key)
	}

	grant(1, moving[0])
	m.err = remote.ErrNoAnswer
	l.chargeFor(t, time.Millisecond)
	m.err = nil
	m.refuses(tryAgain{}, moving[:1])
	l.now.Add(givenUpAfter - int64(time.Second))
	if l.chargeFor(t, time.Second/2); !s.Owes() || s.lostRules() != nil {
		t.Errorf("owes %v, and has lost records of %v before five minutes are over", s.Owes(), s.lostRules())
	}
	if l.chargeFor(t, time.Second); s.Owes() || len(s.lostRules()) != 1 {
		t.Errorf("owes %v, and has lost records of %v; want what is never answered to be given up", s.Owes(), s.lostRules())
	}
}

// Law 11: Redis loses the units granted since a heartbeat while the answer to charges is missing. The older units
// of these charges are sent again under the same sequence number. The newer units are charged together with all
// other units that were lost, each once.
func TestLaws3And11PendingChargesThroughAFailover(t *testing.T) {
	l := newShards(t, 1)
	s, m := l.first, l.masters[0]
	r := newRule(t, "r", limit.PerHour(1000), limit.SlidingLog())
	l.heartbeat(t, s)
	l.heartbeat(t, s)
	without(s, request(r, "k", 7), l.Now(), errLost)
	l.now.Add(int64(20 * minute))
	l.heartbeat(t, s) // the last heartbeat that survives
	l.now.Add(int64(10 * minute))
	without(s, request(r, "k", 30), l.Now(), errLost)
	m.err = remote.ErrNoAnswer
	s.chargeSome() // the 37 units may be charged or not
	m.err, m.behind = nil, 0
	l.heartbeat(t, s)
	m.behind = 1
	if l.heartbeat(t, s); l.Counts.DataLosses.Load() != 1 {
		t.Fatal("the loss was not noticed")
	}
	sent := len(m.charged)
	for s.Owes() {
		s.chargeSome()
	}
	s.Reserve(request(r, "k", 1))
	for s.Owes() {
		s.chargeSome()
	}
	again := m.charged[sent:]
	if len(again) != 2 || len(again[0].Charges) != 1 || again[0].Charges[0].Units != 7 || again[1].Charges[0].Units != 30 {
		t.Fatalf("charged after the loss: %+v, want 7 and 30 units", again)
	}
	if first := m.charged[0].Sequence; again[0].Sequence != first || again[1].Sequence == first {
		t.Errorf("the older units have sequence %d and the newer %d, want %d and another", again[0].Sequence, again[1].Sequence, first)
	}
}

// Law 11: if units were granted long before Redis lost its newest data, but charged after the last heartbeat that
// Redis still has, they are charged again.
func TestLaw11ChargesThatAFailoverLost(t *testing.T) {
	l := newShards(t, 1)
	s, m := l.first, l.masters[0]
	r := newRule(t, "r", limit.PerHour(1000), limit.SlidingLog())
	l.heartbeat(t, s)
	s.Learned(request(r, "k", 100), &remote.Reply{Granted: 100, Remaining: 900})
	l.now.Add(int64(10 * minute))
	l.heartbeat(t, s)
	without(s, request(r, "k", 7), l.Now(), errLost)
	l.now.Add(int64(20 * minute))
	l.heartbeat(t, s) // the last heartbeat that survives
	l.now.Add(int64(time.Second))
	for s.Owes() {
		s.chargeSome()
	}
	l.heartbeat(t, s)
	m.behind = 1
	l.heartbeat(t, s)
	s.Reserve(request(r, "k", 1))
	for s.Owes() {
		s.chargeSome()
	}
	if len(m.charged) != 2 || m.units() != 14 {
		t.Errorf("charged %+v, want 7 units before the loss and the same after it", m.charged)
	}
	// Another failover loses none of these units.
	m.charged = nil
	l.now.Add(int64(5 * minute))
	for range 3 {
		l.heartbeat(t, s)
	}
	m.behind = 1
	l.heartbeat(t, s)
	s.Reserve(request(r, "k", 1))
	for s.Owes() {
		s.chargeSome()
	}
	if len(m.charged) != 0 {
		t.Errorf("charged again, though Redis has it: %+v", m.charged)
	}
}

// Law 11: an answer to charges does not count if Redis is already known to have lost its newest data, because the
// charges may be among the lost data.
func TestLaw11ChargesThatAreAnsweredAfterAFailover(t *testing.T) {
	l := newShards(t, 1)
	s, m := l.first, l.masters[0]
	r := newRule(t, "r", limit.PerHour(1000), limit.SlidingLog())
	l.heartbeat(t, s)
	without(s, request(r, "k", 7), l.Now(), errLost)
	l.now.Add(int64(20 * minute))
	l.heartbeat(t, s) // the last heartbeat that survives
	l.heartbeat(t, s)
	m.after = func() {
		m.behind = 1
		l.heartbeat(t, s)
	}
	for s.Owes() {
		s.chargeSome()
	}
	if len(m.charged) != 2 || m.units() != 14 || m.charged[0].Sequence != m.charged[1].Sequence {
		t.Errorf("charged %+v, want 7 units twice under one sequence", m.charged)
	}
}

// While Redis is lost, nothing is charged, and what is owed stays in the journal.
func TestNothingIsChargedWhileRedisIsLost(t *testing.T) {
	l := newShards(t, 1)
	s, m := l.first, l.masters[0]
	without(s, request(newRule(t, "r", limit.PerHour(100), limit.SlidingLog()), "k", 7), l.Now(), errLost)
	s.Breaker.ForceOpen(errLost)
	if pause := s.chargeSome(); pause != 0 || len(m.charged) != 0 || l.Uncharged() != 7 {
		t.Errorf("pause %v, charged %+v, and %d units are left", pause, m.charged, l.Uncharged())
	}
}

// Law 7: charging takes a bounded part of the time, however slow Redis is.
func TestChargingPausesInProportion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = 30 * time.Millisecond // of the test's clock, not of a real one
		l := newShards(t, 1)
		s, m := l.first, l.masters[0]
		without(s, request(newRule(t, "r", limit.PerHour(100), limit.SlidingLog()), "k", 7), l.Now(), errLost)
		m.after = func() { time.Sleep(took) }
		if pause := s.chargeSome(); pause != chargePauses*took {
			t.Errorf("a pause of %v after a batch that took %v", pause, took)
		}
	})
}

// Law 3: an unanswered charge of units that Redis has lost since then is not repeated, because their keys' next uses
// charge them again. Until then, nothing is owed.
func TestLaw3UnansweredChargesThatAreLostAreNotRepeated(t *testing.T) {
	l := newShards(t, 1)
	s, m := l.first, l.masters[0]
	l.heartbeat(t, s)
	without(s, request(newRule(t, "r", limit.PerHour(100), limit.SlidingLog()), "k", 7), l.Now(), errLost)
	m.err = remote.ErrNoAnswer
	s.chargeSome()
	m.err = nil
	if !s.Owes() {
		t.Fatal("an unanswered charge is not owed")
	}
	m.heard.Generation = "another"
	l.heartbeat(t, s)
	if batch := s.nextCharges(l.Now(), false); len(batch) != 0 || s.Owes() {
		t.Errorf("repeated: %+v, owes %v", batch, s.Owes())
	}
}

// A key that Redis has and cannot read is not charged again and again. It would hold up the end of the
// incident for all instances.
func TestUnreadableKeysAreNotChargedAgain(t *testing.T) {
	l := newShards(t, 1)
	s, m := l.first, l.masters[0]
	without(s, request(newRule(t, "r", limit.PerHour(100), limit.SlidingLog()), "k", 7), l.Now(), errLost)
	m.refused = map[string]error{"k": remote.ErrUnreadable}
	if s.chargeSome(); m.turned["k"] != 1 || s.Owes() {
		t.Errorf("turned away %d times, still owed: %v", m.turned["k"], s.Owes())
	}
}

// Law 11: charges are sent although Redis is overloaded, and decisions find no room. While decisions miss Redis, only
// those are sent that matter: of keys for which the fleet may have granted a sixteenth of the limit. The rest follows a
// second later. It is sent at once if others wait for it.
func TestLaw11WhichChargesAreSentUnderOverload(t *testing.T) {
	const many, few = 10, 9 // of 640 units and 4 instances
	nothing := func(*testShards) {}
	often := func(l *testShards) {
		for range 10 {
			l.now.Add(int64(20 * time.Millisecond))
			l.first.Missed(remote.ErrNoRoom)
		}
	}
	for _, test := range []struct {
		what   string
		before func(*testShards)
		waits  bool // somebody waits for all charges
		want   int64
	}{
		{"a decision has missed Redis", nothing, false, many},
		{"decisions often miss Redis", often, false, many},
		{"a decision has missed Redis, and somebody waits", nothing, true, many + few},
		{"decisions often miss Redis, and somebody waits", often, true, many + few},
		{"the fleet waits, for it also settles after an outage", func(l *testShards) { l.first.settleAnew(); often(l) }, false, many + few},
	} {
		l := newShards(t, 1)
		s, m := l.first, l.masters[0]
		m.heard.Size, m.crowded = 4, true
		l.heartbeat(t, s)
		r := newRule(t, "r", limit.PerHour(640), limit.SlidingLog())
		test.before(l)
		for key, units := range map[remote.UserKey]int64{"many": many, "few": few} {
			if d := without(s, request(r, key, units), l.Now(), remote.ErrNoRoom); !d.Allowed {
				t.Fatalf("%s: %+v", test.what, d)
			}
		}
		waited := make(chan error, 1)
		if test.waits {
			go func() { waited <- l.ChargeRest(t.Context(), false) }()
			redistest.Eventually(t, "somebody waits", func() bool { return l.charges.awaited.Load() > 0 })
		}
		pause := s.chargeSome()
		if test.waits {
			if err := <-waited; err != nil || l.charges.awaited.Load() != 0 {
				t.Errorf("%s: %v; %d still wait", test.what, err, l.charges.awaited.Load())
			}
		}
		if m.units() != test.want || pause == 0 || pause > time.Second {
			t.Errorf("%s: %d units charged, want %d; the next after %v", test.what, m.units(), test.want, pause)
		}
		if m.within != 4*l.Deadline {
			t.Errorf("charges have %v", m.within)
		}
		for _, next := range []struct {
			answered int64
			pause    time.Duration
		}{{decisionsPerCharge - 1, l.Deadline}, {decisionsPerCharge, ProbeEvery}} {
			m.answered = next.answered
			if pause := s.chargeSome(); test.want == many && pause != next.pause || m.units() != test.want {
				t.Errorf("%s: %d decisions later, with nothing that matters, the next after %v; %d units charged", test.what, next.answered, pause, m.units())
			}
		}
		l.now.Add(int64(time.Second))
		if s.chargeSome(); m.units() != many+few || s.Owes() {
			t.Errorf("%s: %d units charged a second later", test.what, m.units())
		}
	}
}

// While decisions miss Redis, a batch has fewer keys, and the next one is sent once Redis has made several decisions for
// each of them.
func TestChargesLeaveRedisTimeForDecisions(t *testing.T) {
	l := newShards(t, 1)
	s, m := l.first, l.masters[0]
	l.heartbeat(t, s)
	r := newRule(t, "r", limit.PerHour(10), limit.SlidingLog())
	for i := range 2 * chargedAtOnce {
		without(s, request(r, remote.UserKey(fmt.Sprint(i)), 1), l.Now(), remote.ErrNoRoom)
	}
	for _, next := range []struct{ answered, units int64 }{{0, 32}, {255, 32}, {256, 64}, {511, 64}, {512, 96}} {
		m.answered = next.answered
		if s.chargeSome(); m.units() != next.units {
			t.Errorf("after %d decisions: %d units charged, want %d", next.answered, m.units(), next.units)
		}
	}
	l.now.Add(int64(time.Second)) // no decision has missed Redis for a second
	if s.chargeSome(); m.units() != 2*chargedAtOnce {
		t.Errorf("without misses: %d units charged", m.units())
	}
}

// Decisions that often miss Redis wake the charger, which need not wait for the next heartbeat.
func TestOverloadWakesTheCharger(t *testing.T) {
	l := newShards(t, 1)
	l.heartbeat(t, l.first)
	for range 10 {
		l.now.Add(int64(20 * time.Millisecond))
		l.first.Missed(remote.ErrNoRoom)
	}
	if len(l.first.charger.wake) != 1 {
		t.Error("the charger sleeps")
	}
}

// Charges are not sent if the breaker has opened since the batch was made. They are back in the journal.
func TestNoChargesAfterTheBreakerHasOpened(t *testing.T) {
	l := newShards(t, 1)
	s, m := l.first, l.masters[0]
	l.heartbeat(t, s)
	without(s, request(newRule(t, "r", limit.PerHour(10), limit.SlidingLog()), "k", 3), l.Now(), errLost)
	batch := s.nextCharges(l.Now(), false)
	s.Breaker.ForceOpen(errLost)
	if s.charge(batch); m.units() != 0 || len(l.charges.out) != 0 {
		t.Errorf("%d units were charged, %d charges are pending", m.units(), len(l.charges.out))
	}
	if units, _ := l.Ledger.Waiting(); units != 3 {
		t.Errorf("%d units are in the journal", units)
	}
}

// A key that cannot be read in Redis is not charged, and the log says so. The others are, and it is recorded since when
// Redis must not lose data.
func TestChargesOfAnUnreadableKey(t *testing.T) {
	l, log := newShards(t, 1), new(warnings)
	l.Log = log
	s, m := l.first, l.masters[0]
	l.heartbeat(t, s)
	r := newRule(t, "r", limit.PerHour(100), limit.SlidingLog())
	first := l.Now()
	for i := range 10 {
		without(s, request(r, remote.UserKey(fmt.Sprint(i)), 1), l.Now(), errLost)
		l.now.Add(int64(10 * minute))
	}
	m.refused = map[string]error{"9": remote.ErrUnreadable}
	s.memory.chargedSince = 0
	s.chargeSome()
	if want := (warnings{"a key in Redis cannot be read; the outage policy decides for it"}); !slices.Equal(*log, want) || s.Owes() {
		t.Errorf("the log has %q; it owes units: %v", *log, s.Owes())
	}
	if since := s.memory.chargedSince; since < first+int64(36*minute) || since > first+int64(46*minute) { // the oldest that counts was granted after 40 minutes
		t.Errorf("charged since %v", time.Duration(since-first))
	}
}

// A charge has no more time than a decision if that is long, since Close waits for it.
func TestTimeOfCharges(t *testing.T) {
	for deadline, want := range map[time.Duration]time.Duration{
		20 * time.Millisecond: 80 * time.Millisecond, 100 * time.Millisecond: 250 * time.Millisecond, time.Second: time.Second,
	} {
		l := newShards(t, 1)
		l.Deadline = deadline
		l.heartbeat(t, l.first)
		without(l.first, request(newRule(t, "r", limit.PerHour(10), limit.SlidingLog()), "k", 1), l.Now(), remote.ErrNoRoom)
		if l.first.chargeSome(); l.masters[0].within != want {
			t.Errorf("with a deadline of %v: %v, want %v", deadline, l.masters[0].within, want)
		}
	}
}

// Law 11: under GCRA, units that were granted since Redis is back, or since it was noticed that it has lost data, are
// charged in full. Those granted before have been paid off meanwhile.
func TestLaw11WhatIsChargedInFullUnderGCRA(t *testing.T) {
	const units, later = 10, 30 * time.Second // by then, this instance's share has paid off more than 10 units
	for _, test := range []struct {
		what   string
		before func(*testing.T, *testShards)
		after  func(*testing.T, *testShards)
		want   int64
	}{
		{"overload", nil, nil, units},
		{"overload that has begun before", func(_ *testing.T, l *testShards) {
			for range 10 {
				l.now.Add(int64(20 * time.Millisecond))
				l.first.Missed(remote.ErrNoRoom)
			}
		}, nil, units},
		{"in an outage", func(_ *testing.T, l *testShards) { l.first.Breaker.ForceOpen(errLost) }, func(t *testing.T, l *testShards) {
			l.closeBreaker(t, l.first)
		}, 0},
		{"after an outage", func(t *testing.T, l *testShards) {
			l.first.Breaker.ForceOpen(errLost)
			l.closeBreaker(t, l.first)
			l.now.Add(int64(time.Second))
		}, nil, units},
		{"before a loss of data", nil, func(_ *testing.T, l *testShards) { l.first.dataLost(0, 0) }, 0},
		{"after a loss of data", func(_ *testing.T, l *testShards) { l.first.dataLost(0, 0); l.now.Add(int64(time.Second)) }, nil, units},
	} {
		l := newShards(t, 1)
		s, m := l.first, l.masters[0]
		m.heard.Size = 4
		l.heartbeat(t, s)
		if test.before != nil {
			test.before(t, l)
		}
		r := newRule(t, "r", limit.PerMinute(100), limit.GCRA()) // a share of 12.5 units in 30 s
		without(s, request(r, "k", units), l.Now(), remote.ErrNoRoom)
		l.now.Add(int64(later))
		if test.after != nil {
			test.after(t, l)
		}
		if s.chargeSome(); m.units() != test.want {
			t.Errorf("granted %s: %d units charged, want %d", test.what, m.units(), test.want)
		}
	}
}
