package tiered

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Law 2: DenialLife sets how long denials of its rule are remembered, and does not affect other rules.
func TestLaw2DenialLife(t *testing.T) {
	clock := newVirtual()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), VirtualClock(clock.now))
	for _, life := range []time.Duration{0, 200 * time.Millisecond, time.Second} {
		r := newRule(t, l, "r"+life.String(), limit.PerHour(1), DenialLife(life))
		mustAllow(t, r, "k", 1)
		mustAllow(t, r, "k", 1) // denied, and remembered
		for after := time.Duration(0); after <= time.Second; after += 100 * time.Millisecond {
			tier := limit.TierRedis
			if after < life {
				tier = limit.TierLocal
			}
			// Do not ask again before the denial's life is over, because a new denial would restart it.
			if d := mustAllow(t, r, "k", 1); d.Allowed || d.Tier != tier {
				t.Errorf("denials live %v, %v later: %+v", life, after, d)
			}
			if after >= life {
				break
			}
			clock.advance(100 * time.Millisecond)
		}
	}
	for _, life := range []time.Duration{-1, time.Second + 1} {
		if _, err := l.Rule("bad", limit.PerHour(1), DenialLife(life)); !errors.Is(err, limit.ErrInvalidOption) {
			t.Errorf("%v: %v", life, err)
		}
	}
}

// Rules can be prepared without being in force. Several rules are put in force together or not at all.
func TestPutInForce(t *testing.T) {
	server := redistest.Shared(t)
	l, other := newLimiterOn(t, server.Client(t), redistest.Prefix()), newLimiterOn(t, server.Client(t), redistest.Prefix())
	old := newRule(t, l, "a", limit.PerHour(1))
	a, err := l.PrepareRule("a", limit.PerHour(2))
	if err != nil {
		t.Fatal(err)
	}
	if r, err := l.Rule("a", limit.PerHour(1)); err != nil || r != old {
		t.Errorf("a prepared rule is in force: %v, %v", r, err)
	}
	for _, bad := range []*Rule{nil, newRule(t, other, "b", limit.PerHour(1))} {
		if err := l.PutInForce(a, bad); !errors.Is(err, limit.ErrInvalidRule) {
			t.Error(err)
		}
	}
	if r, err := l.Rule("a", limit.PerHour(1)); err != nil || r != old {
		t.Errorf("a part is in force: %v, %v", r, err)
	}
	if err := l.PutInForce(a); err != nil {
		t.Fatal(err)
	}
	if r, err := l.Rule("a", limit.PerHour(2)); err != nil || r != a {
		t.Errorf("%v, %v", r, err)
	}
}

// Law 2: callers take the only unit of a key and give it back, again and again. The unit is never denied from
// memory while it is free in Redis, however the denials of some callers and the refunds of others interleave.
func TestLaw2AUnitThatIsGivenBackIsNotDenied(t *testing.T) {
	t.Parallel()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), Deadline(5*time.Second))
	for _, a := range []limit.Algorithm{limit.SlidingLog(), limit.SlidingCounter(1, limit.Strict)} {
		r := newRule(t, l, a.Name(), limit.PerDay(1), Use(a))
		takeAndGiveBack := func() (taken bool) {
			d, err := r.Allow(context.Background(), "k")
			if err == nil && d.Allowed {
				taken = true
				err = r.Refund(context.Background(), "k", &d, 1)
			}
			if err != nil {
				t.Error(err)
			}
			return taken
		}
		remembered := 0
		for turn := range 100 {
			d := mustAllow(t, r, "k", 1)
			if !d.Allowed {
				t.Fatalf("%v, turn %d: denied, but it is free: %+v", a, turn, d)
			}
			if d := mustAllow(t, r, "k", 1); d.Allowed {
				t.Fatalf("%v, turn %d: granted twice", a, turn)
			}
			if mustAllow(t, r, "k", 1).Tier == limit.TierLocal {
				remembered++
			}
			mustRefund(t, r, "k", &d, 1)
			var callers sync.WaitGroup
			for range 8 {
				callers.Go(func() { takeAndGiveBack() })
			}
			callers.Wait()
			if !takeAndGiveBack() {
				t.Fatalf("%v, turn %d: denied after others have given it back", a, turn)
			}
		}
		if remembered < 50 {
			t.Errorf("%v: the test shows little: %d denials in 100 turns were remembered", a, remembered)
		}
	}
}
