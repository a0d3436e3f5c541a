package outage

import (
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local/ledger"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// Law 11: under GCRA the debt of what was granted is charged, as this instance's share of
// the rate would have it: of units paid off meanwhile there is none.
func TestGCRADebts(t *testing.T) {
	r := newRule(t, "r", limit.Per(1000, 100*time.Second), limit.GCRA())
	const second = int64(time.Second)
	parts := []ledger.Part{{Units: 80, At: 100 * second}, {Units: 30, At: 110 * second}}
	for _, test := range []struct {
		share float64
		fleet int
		at    int64
		want  int64
	}{{1, 9, 110, 30}, {1, 9, 112, 10}, {1, 9, 113, 0}, {0.5, 9, 110, 60}, {0, 4, 110, 85}, {0, 4, 130, 35}} {
		d := ledger.Debt[*Rule]{Owner: r, Key: "k", Share: test.share, Parts: parts}
		units := int64(0)
		for _, c := range r.charges(d, test.at*second, test.fleet) {
			units += c.Units
			if c.Age != 0 {
				t.Errorf("%+v: age %v", test, c.Age)
			}
		}
		if units != test.want {
			t.Errorf("%+v: %d units", test, units)
		}
	}
}

// Law 3: charges whose replies were lost are made once, in a real Redis.
func TestLaw3ChargesAreMadeOnce(t *testing.T) {
	client := redistest.Start(t).Client(t)
	keys, err := remote.NewKeyspace(redistest.Prefix())
	if err != nil {
		t.Fatal(err)
	}
	b := remote.NewBatcher(remote.NewScript(client), remote.Options{Deadline: 5 * time.Second, MaxBatch: 128, MaxWork: 100_000, InFlight: 8, Queue: 1000},
		remote.Hooks{Begin: func() (func(error), error) { return func(error) {}, nil }, Trip: func(int, time.Duration, error) {}})
	defer b.Close()
	l := newShards(t, 1)
	s := l.first
	s.Decider = b
	for _, a := range limit.Algorithms() {
		lim := limit.PerHour(1000).WithBurst(1000)
		encoded, err := remote.NewRule(lim, a)
		if err != nil {
			t.Fatal(err)
		}
		r := &Rule{Name: a.Name(), Limit: lim, Algorithm: a, Encoded: encoded.Named(keys, a.Name(), nil)}
		remaining := func() int64 {
			t.Helper()
			reply, err := b.Decide(t.Context(), remote.Entry{Key: "k", Rule: r.Encoded, Operation: lua.Peek, Cost: 1})
			if err != nil {
				t.Fatal(err)
			}
			return reply.Remaining
		}
		before := remaining()
		debts := []ledger.Debt[*Rule]{{Owner: r, Key: "k", Parts: []ledger.Part{{Units: 7, At: l.Now()}}}}
		if unknown := s.charge(debts, 5, false); unknown != nil {
			t.Fatalf("%v: not charged: %+v", a, unknown)
		}
		counted := l.charged.Load()
		if unknown := s.charge(debts, 5, true); unknown != nil { // as if that answer had not come
			t.Fatalf("%v: not charged: %+v", a, unknown)
		}
		if counted = l.charged.Load() - counted; counted != 7 {
			t.Errorf("%v: a charge whose answer was lost counts %v units when it is found to be made, want 7", a, counted)
		}
		if n := remaining(); n != before-7 {
			t.Errorf("%v: %d remain of %d, want 7 less", a, n, before)
		}
		if unknown := s.charge(debts, 6, false); unknown != nil {
			t.Fatalf("%v: not charged: %+v", a, unknown)
		}
		if n := remaining(); n != before-14 {
			t.Errorf("%v: %d remain of %d after another charge, want 14 less", a, n, before)
		}
	}
}

// Law 3: a batch whose answer is lost is sent again under its sequence; the units stay owed until
// then.
func TestLaw3ALostAnswerIsAskedForAgain(t *testing.T) {
	l := newShards(t, 1)
	s, m := l.first, l.masters[0]
	l.heartbeat(t, s)
	r := newRule(t, "r", limit.PerHour(100), limit.SlidingLog())
	s.Without(question(r, "k", 7), l.Now(), errLost)
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
