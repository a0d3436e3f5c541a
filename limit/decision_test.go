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
