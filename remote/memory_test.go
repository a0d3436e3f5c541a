package remote

import (
	"context"
	"testing"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// The memory of a key in Redis, including Redis's own overhead, as measured by MEMORY USAGE, stays within its
// bounds.
func TestMemoryPerKey(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script := NewScript(client)
	usage := func(key string) int64 {
		t.Helper()
		n, err := client.MemoryUsage(context.Background(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}

	t.Run("log", func(t *testing.T) {
		rule := newRule(t, limit.PerHour(1000), limit.SlidingLog())
		key := redistest.Prefix() + "k"
		for units := int64(1); units <= 1000; units++ {
			decide(t, script, key, rule, epoch+units, 1)
			if n := usage(key); units > 64 && n > 10*units {
				t.Errorf("%d bytes for %d units on the way up, more than 10 a unit", n, units)
			}
		}
		full := usage(key)
		t.Logf("full: %d bytes for 1,000 units", full)
		if full > 6000 {
			t.Errorf("%d bytes for 1,000 units, more than 6 a unit", full)
		}
		// When the ring wraps around, its size stays the same.
		for i := range int64(1500) {
			decide(t, script, key, rule, epoch+3_600_000_000+i, 1)
		}
		if n := usage(key); n != full {
			t.Errorf("%d bytes after another round, %d before", n, full)
		}
	})

	for _, tc := range []struct {
		algorithm limit.Algorithm
		quota     int64
		most      int64
	}{
		{limit.GCRA(), 1_000_000, 135},
		{limit.GCRA(), 999_983, 135}, // a prime, so that the interval has a fraction
		{limit.SlidingCounter(1, limit.Estimate), 10_000, 135},
		{limit.SlidingCounter(limit.DefaultBuckets, limit.Strict), 10_000, 160},
		{limit.FixedWindow(), 10_000, 135},
	} {
		key := redistest.Prefix() + "k"
		decide(t, script, key, newRule(t, limit.PerMinute(tc.quota), tc.algorithm), epoch, 1)
		if n := usage(key); n > tc.most {
			t.Errorf("%v at %d: %d bytes, want at most %d", tc.algorithm, tc.quota, n, tc.most)
		} else {
			t.Logf("%v at %d: %d bytes", tc.algorithm, tc.quota, n)
		}
	}
}
