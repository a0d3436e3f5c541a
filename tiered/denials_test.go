package tiered

import (
	"errors"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Law 2: a rule's denials are remembered for as long as it says, and others' as ever.
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
			// Not to be asked again before life is over: that would renew it.
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

// Rules are prepared without being in force, and put in force all or none.
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
