package limit

import "testing"

func TestTiers(t *testing.T) {
	for tier, name := range map[Tier]string{TierRedis: "redis", TierLocal: "local", TierFallback: "fallback", TierLease: "lease", TierOverload: "overload", 5: "unknown"} {
		if tier.String() != name {
			t.Errorf("tier %d is called %q, want %q", tier, tier, name)
		}
		if got, want := (Decision{Tier: tier}).Degraded(), tier == TierFallback || tier == TierOverload; got != want {
			t.Errorf("%v: degraded %v, want %v", tier, got, want)
		}
	}
}

// A limit that was only held back by another one did not deny. A limit on a dry run never denies.
func TestDenied(t *testing.T) {
	for _, test := range []struct {
		decision Decision
		denied   bool
	}{
		{Decision{Allowed: true}, false},
		{Decision{}, true},
		{Decision{HeldBack: true}, false},
		{Decision{Allowed: true, DryRun: true, WouldDeny: true}, false},
	} {
		if test.decision.Denied() != test.denied {
			t.Errorf("%+v: denied %v, want %v", test.decision, !test.denied, test.denied)
		}
	}
}
