package tiered

import (
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tierlimit/tierlimit/limit"
)

// No count is lost or put down to another tier, outcome or rule, whoever counts.
func TestDecisionsAreCounted(t *testing.T) {
	m := newDecisionsMetric()
	search, dry := m.rule("search", false), m.rule("search", true)
	if m.rule("search", false) != search {
		t.Error("rules of one name have counts of their own")
	}
	var counting sync.WaitGroup
	for range 32 {
		counting.Go(func() {
			for range 1000 {
				search.add(&limit.Decision{Tier: limit.TierLease, Allowed: true})
				search.add(&limit.Decision{Tier: limit.TierLocal})
				search.add(&limit.Decision{Tier: limit.TierRedis, HeldBack: true})
				dry.add(&limit.Decision{})
			}
		})
	}
	counting.Wait()
	err := testutil.CollectAndCompare(m, strings.NewReader(`
# HELP tierlimit_decisions_total Decisions by rule, deciding tier (redis, local, lease, fallback, overload) and outcome (allowed, denied, held_back: not denied by this rule, but by another of the same request; of rules on a dry run would_allow, would_deny).
# TYPE tierlimit_decisions_total counter
tierlimit_decisions_total{outcome="allowed",rule="search",tier="fallback"} 0
tierlimit_decisions_total{outcome="allowed",rule="search",tier="lease"} 32000
tierlimit_decisions_total{outcome="allowed",rule="search",tier="local"} 0
tierlimit_decisions_total{outcome="allowed",rule="search",tier="overload"} 0
tierlimit_decisions_total{outcome="allowed",rule="search",tier="redis"} 0
tierlimit_decisions_total{outcome="denied",rule="search",tier="fallback"} 0
tierlimit_decisions_total{outcome="denied",rule="search",tier="lease"} 0
tierlimit_decisions_total{outcome="denied",rule="search",tier="local"} 32000
tierlimit_decisions_total{outcome="denied",rule="search",tier="overload"} 0
tierlimit_decisions_total{outcome="denied",rule="search",tier="redis"} 0
tierlimit_decisions_total{outcome="held_back",rule="search",tier="fallback"} 0
tierlimit_decisions_total{outcome="held_back",rule="search",tier="lease"} 0
tierlimit_decisions_total{outcome="held_back",rule="search",tier="local"} 0
tierlimit_decisions_total{outcome="held_back",rule="search",tier="overload"} 0
tierlimit_decisions_total{outcome="held_back",rule="search",tier="redis"} 32000
tierlimit_decisions_total{outcome="would_allow",rule="search",tier="fallback"} 0
tierlimit_decisions_total{outcome="would_allow",rule="search",tier="lease"} 0
tierlimit_decisions_total{outcome="would_allow",rule="search",tier="local"} 0
tierlimit_decisions_total{outcome="would_allow",rule="search",tier="overload"} 0
tierlimit_decisions_total{outcome="would_allow",rule="search",tier="redis"} 0
tierlimit_decisions_total{outcome="would_deny",rule="search",tier="fallback"} 0
tierlimit_decisions_total{outcome="would_deny",rule="search",tier="lease"} 0
tierlimit_decisions_total{outcome="would_deny",rule="search",tier="local"} 0
tierlimit_decisions_total{outcome="would_deny",rule="search",tier="overload"} 0
tierlimit_decisions_total{outcome="would_deny",rule="search",tier="redis"} 32000
`))
	if err != nil {
		t.Error(err)
	}
}

// Stripes that share a cache line would be worse than none.
func TestStripesAreCacheLines(t *testing.T) {
	c := newDecisionsMetric().rule("r", false)
	if size := unsafe.Sizeof(c[0]); size%64 != 0 {
		t.Errorf("a stripe has %d bytes, which are no whole cache lines", size)
	}
	if start := uintptr(unsafe.Pointer(c)); start%64 != 0 {
		t.Errorf("they start at %#x, which is not where a cache line does", start)
	}
}
