package tiered

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// wrapped is a client of a type of the user's own, and no pointer.
type wrapped struct{ redis.UniversalClient }

// A client of an unknown type works: it may be a Cluster's, and is used as one.
func TestClientOfAnotherType(t *testing.T) {
	l := newLimiterOn(t, wrapped{redistest.Shared(t).Client(t)}, redistest.Prefix())
	r := newRule(t, l, "r", limit.PerHour(2))
	for i := range 3 {
		if d := mustAllow(t, r, "k", 1); d.Allowed != (i < 2) || d.Degraded() {
			t.Errorf("request %d: %+v", i, d)
		}
	}
}
