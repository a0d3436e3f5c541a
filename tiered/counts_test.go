package tiered

import (
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/tierlimit/tierlimit/limit"
)

// No count is lost, or attributed to the wrong tier, outcome or rule, however many goroutines count at the same
// time.
func TestDecisionsAreCounted(t *testing.T) {
	m := newCounters()
	_, search := m.rule("search", false)
	_, dry := m.rule("search", true)
	if _, again := m.rule("search", false); again != search {
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
	r := m.rules["search"].stats("search")
	want := make([]TierStats, tiers)
	for tier := range tiers {
		want[tier].Tier = tier
	}
	wantDry := slices.Clone(want)
	wantDry[limit.TierRedis].Denied = 32000
	if !slices.Equal(r.DryRun, wantDry) {
		t.Errorf("on a dry run %+v, want %+v", r.DryRun, wantDry)
	}
	want[limit.TierLease].Allowed = 32000
	want[limit.TierLocal].Denied = 32000
	want[limit.TierRedis].HeldBack = 32000
	if !slices.Equal(r.Decisions, want) {
		t.Errorf("%+v, want %+v", r.Decisions, want)
	}
}

// Each stripe has cache lines of its own. Stripes that shared a cache line would be slower than a single counter.
func TestStripesAreCacheLines(t *testing.T) {
	_, c := newCounters().rule("r", false)
	if size := unsafe.Sizeof(c[0]); size%64 != 0 {
		t.Errorf("a stripe has %d bytes, which are no whole cache lines", size)
	}
	if start := uintptr(unsafe.Pointer(c)); start%64 != 0 {
		t.Errorf("they start at %#x, which is not where a cache line does", start)
	}
}
