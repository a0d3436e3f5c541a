package tiered

import (
	"errors"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// A rule keeps its kind: every call that a program makes of a rate limit would be an error under a concurrency limit,
// and the reverse. So a change between them is refused when it is made, and the rule in force stays.
func TestARuleKeepsItsKind(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	rate, slots := limit.PerHour(10), limit.Concurrent(10)
	for name, c := range map[string]struct {
		is, other, same limit.Limit
	}{
		"rate":  {rate, slots, limit.PerHour(20)},
		"slots": {slots, rate, limit.Concurrent(20)},
	} {
		r := newRule(t, l, name, c.is)
		if _, err := r.WithLimit(c.other); !errors.Is(err, limit.ErrInvalidLimit) {
			t.Errorf("%s, WithLimit: %v", name, err)
		}
		if _, err := l.ChangeRule(name, c.other); !errors.Is(err, limit.ErrInvalidRule) {
			t.Errorf("%s, ChangeRule: %v", name, err)
		}
		if again, err := l.Rule(name, c.is); err != nil || again != r {
			t.Errorf("%s: %v, %v: not the rule in force", name, again, err)
		}
		if _, err := r.WithLimit(c.same); err != nil {
			t.Errorf("%s, WithLimit of its kind: %v", name, err)
		}
		changed, err := l.ChangeRule(name, c.same)
		if err != nil {
			t.Fatalf("%s, ChangeRule of its kind: %v", name, err)
		}
		if again, err := l.Rule(name, c.same); err != nil || again != changed {
			t.Errorf("%s: %v, %v: not the changed rule", name, again, err)
		}
	}

	// Rules that are put in force together stay out of force together.
	other, err := l.PrepareRule("other", rate)
	if err != nil {
		t.Fatal(err)
	}
	kind, err := l.PrepareRule("rate", slots)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.PutInForce(other, kind); !errors.Is(err, limit.ErrInvalidRule) {
		t.Errorf("PutInForce: %v", err)
	}
	if r, err := l.Rule("other", slots); err != nil {
		t.Errorf("%v: %v: the rule beside the refused one is in force", r, err)
	}
}

// A source may change a rule from a rate to a concurrency limit. What was charged under the rate is still settled as such.
func TestSettlementsAfterAChangeOfTheKind(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	inForce := func(lim limit.Limit) *Rule {
		t.Helper()
		r, err := l.PrepareRule("r", lim)
		if err == nil {
			err = l.PutInForceFrom("rules.yaml", r)
		}
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	rate := inForce(limit.PerHour(10))
	hold := mustHold(t, rate, "k", 8, time.Minute)
	slots := inForce(limit.Concurrent(10))
	mustAcquire(t, slots, "k", 5)
	mustSettle(t, hold, 2)
	if free := left(t, rate, "k"); free != 8 {
		t.Errorf("%d units of the rate are free, want 8", free)
	}
	if free := left(t, slots, "k"); free != 5 {
		t.Errorf("%d slots are free, want 5", free)
	}
}
