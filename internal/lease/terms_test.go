package lease

import (
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
)

func TestTerms(t *testing.T) {
	const ms = time.Millisecond
	log, fixed, gcra := limit.SlidingLog(), limit.FixedWindow(), limit.GCRA()
	for _, c := range []struct {
		what          string
		limit         limit.Limit
		algorithm     limit.Algorithm
		percent       int
		within        bool
		most, reserve int64 // most 0: no leases
		life          time.Duration
		inRedis       limit.Limit
	}{
		{"a second at most", limit.PerMinute(1000), log, 10, false, 100, 100, time.Second, limit.PerMinute(1000)},
		{"an eighth of the window", limit.Per(1000, 4*time.Second), log, 10, false, 100, 100, 500 * ms, limit.Per(1000, 4*time.Second)},
		{"whole microseconds", limit.Per(1000, 100*ms+time.Microsecond), log, 10, false, 100, 100, 12500 * time.Microsecond, limit.Per(1000, 100*ms+time.Microsecond)},
		{"the shortest window", limit.Per(1000, 100*ms), log, 10, false, 100, 100, 12500 * time.Microsecond, limit.Per(1000, 100*ms)},
		{"a shorter one", limit.Per(1000, 99*ms), log, 10, false, 0, 0, 0, limit.Per(1000, 99*ms)},
		{"one unit on lease", limit.PerMinute(10), log, 10, false, 1, 1, time.Second, limit.PerMinute(10)},
		{"less than one", limit.PerMinute(9), log, 10, true, 0, 0, 0, limit.PerMinute(9)},
		{"rounded in favour of others", limit.PerMinute(19), log, 10, false, 1, 2, time.Second, limit.PerMinute(19)},
		{"within the limit", limit.PerMinute(1000), log, 25, true, 250, 188, time.Second, limit.PerMinute(750)},
		{"within a fixed window, which they end with", limit.PerMinute(1000), fixed, 25, true, 250, 250, time.Second, limit.PerMinute(1000)},
		{"of a burst", limit.PerMinute(1000).WithBurst(40), gcra, 25, false, 250, 10, time.Second, limit.PerMinute(1000).WithBurst(40)},
		{"within the limit, of a burst", limit.PerMinute(1000).WithBurst(40), gcra, 25, true, 250, 10, time.Second, limit.PerMinute(750).WithBurst(40)},
		{"within the limit, of a burst of the quota", limit.PerMinute(1000), gcra, 25, true, 250, 250, time.Second, limit.PerMinute(750).WithBurst(1000)},
		{"within the limit, of the largest burst", limit.Per(10, limit.MaxWindow), gcra, 50, true, 5, 3, time.Second, limit.Per(5, limit.MaxWindow).WithBurst(5)},
		{"within the largest limit", limit.PerSecond(limit.MaxQuota), gcra, 50, true, limit.MaxQuota / 2, limit.MaxQuota / 2, 125 * ms, limit.PerSecond(limit.MaxQuota / 2).WithBurst(limit.MaxQuota)},
		{"within the fastest limit", limit.Per(limit.MaxQuota, 100*ms), gcra, 50, true, limit.MaxQuota / 2, limit.MaxQuota / 2, 12500 * time.Microsecond, limit.Per(limit.MaxQuota/2, 100*ms).WithBurst(limit.MaxQuota)},
	} {
		terms, inRedis := NewTerms(local.NewHasher(), "r", c.limit, c.algorithm, c.percent, c.within)
		if inRedis != c.inRedis || inRedis.Validate() != nil {
			t.Errorf("%s: in Redis %v, %v; want %v", c.what, inRedis, inRedis.Validate(), c.inRedis)
		}
		if terms == nil && c.most == 0 {
			continue
		}
		if terms == nil || terms.Most != c.most || terms.Reserve != c.reserve || terms.Life != c.life {
			t.Errorf("%s: %+v, want %d, %d, %v", c.what, terms, c.most, c.reserve, c.life)
		}
	}
}

// Terms that differ in anything that matters for a lease have different salts.
func TestTermsHaveSaltsOfTheirOwn(t *testing.T) {
	h := local.NewHasher()
	salt := func(rule string, lim limit.Limit, a limit.Algorithm, percent int, within bool) uint64 {
		terms, _ := NewTerms(h, rule, lim, a, percent, within)
		return terms.Salt
	}
	lim, a := limit.PerMinute(1000), limit.GCRA()
	first := salt("r", lim, a, 10, false)
	if again := salt("r", lim, a, 10, false); again != first {
		t.Error("the same terms have another salt")
	}
	for what, other := range map[string]uint64{
		"rule": salt("s", lim, a, 10, false), "limit": salt("r", lim.WithBurst(9), a, 10, false), "algorithm": salt("r", lim, limit.SlidingLog(), 10, false),
		"percentage": salt("r", lim, a, 11, false), "kind": salt("r", lim, a, 10, true),
	} {
		if other == first {
			t.Errorf("another %s has the same salt", what)
		}
	}
}
