package admission_test

import (
	"testing"

	"github.com/tierlimit/tierlimit/embedded"
	"github.com/tierlimit/tierlimit/internal/admission"
	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

func open(t *testing.T) *tiered.Limiter {
	t.Helper()
	l, err := embedded.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// Only a denial that was made without Redis, under a policy that lets nothing through, says that Redis is not
// available. Callers tell their clients then that it is not their fault. The wait alone proves nothing: that of a
// quota that is used up may be as long.
func TestWhichDenialsAreByOutage(t *testing.T) {
	l := open(t)
	deny := l.MustRule("deny", limit.PerMinute(1), tiered.OnOutage(tiered.Deny))
	shares := l.MustRule("shares", limit.PerMinute(1))
	probe := outage.ProbeEvery
	for _, test := range []struct {
		what            string
		rule            *tiered.Rule
		d               limit.Decision
		under, byOutage bool
	}{
		{"by the policy", deny, limit.Decision{Tier: limit.TierFallback, RetryAfter: probe}, true, true},
		{"by the policy, under overload", deny, limit.Decision{Tier: limit.TierOverload, RetryAfter: probe}, true, true},
		{"by the share, after an outage", deny, limit.Decision{Tier: limit.TierFallback, RetryAfter: probe + 1}, true, false},
		{"by Redis", deny, limit.Decision{Tier: limit.TierRedis, RetryAfter: probe}, false, false},
		{"from memory", deny, limit.Decision{Tier: limit.TierLocal, RetryAfter: probe}, false, false},
		{"by the share, in an outage", shares, limit.Decision{Tier: limit.TierFallback, RetryAfter: probe}, false, false},
		{"let through by a dry run", deny, limit.Decision{Tier: limit.TierFallback, RetryAfter: probe, Allowed: true}, false, false},
		{"held back by another limit", deny, limit.Decision{Tier: limit.TierFallback, RetryAfter: probe, HeldBack: true}, false, false},
	} {
		if under, by := admission.UnderOutagePolicy(test.rule, &test.d), admission.ByOutage(test.rule, &test.d); under != test.under || by != test.byOutage {
			t.Errorf("%s: under the outage policy %v, by the outage %v; want %v, %v", test.what, under, by, test.under, test.byOutage)
		}
	}
}
