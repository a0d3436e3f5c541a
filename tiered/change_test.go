package tiered

import (
	"errors"
	"testing"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// A rule changed at run time keeps what was charged: in Redis and for an outage.
func TestChangeRuleKeepsTheCounts(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	small := newRule(t, l, "r", limit.PerHour(10))
	mustAllow(t, small, "k", 10)
	if d := mustAllow(t, small, "k", 1); d.Allowed {
		t.Fatalf("%+v", d)
	}

	large, err := l.ChangeRule("r", limit.PerHour(15))
	if err != nil {
		t.Fatal(err)
	}
	// At once, although a denial under the small limit is remembered.
	if d := mustAllow(t, large, "k", 5); !d.Allowed || d.Remaining != 0 {
		t.Errorf("%+v", d)
	}
	counted, err := l.ChangeRule("r", limit.PerHour(16), Use(limit.SlidingCounter(4, limit.Strict)))
	if err != nil {
		t.Fatal(err)
	}
	if d := mustAllow(t, counted, "k", 1); !d.Allowed || d.Remaining != 0 {
		t.Errorf("%+v", d)
	}
	// Whoever still holds the small rule stays correct.
	if d := mustAllow(t, small, "k", 1); d.Allowed {
		t.Errorf("%+v", d)
	}
	if again, err := l.Rule("r", limit.PerHour(16), Use(limit.SlidingCounter(4, limit.Strict))); err != nil || again != counted {
		t.Errorf("%v, %v: not the rule in force", again, err)
	}
	l.shard.Breaker.ForceOpen(errors.New("killed"))
	if d := mustAllow(t, counted, "k", 1); d.Allowed || !d.Degraded() {
		t.Errorf("in an outage: %+v", d)
	}
	if _, err := l.ChangeRule("r", limit.Limit{}); err == nil {
		t.Error("an invalid limit was put in force")
	}
}
