package service

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/embedded"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/serve/internal/config"
	"github.com/tierlimit/tierlimit/serve/internal/stats"
	"github.com/tierlimit/tierlimit/tiered"
)

// Configured limits with the same terms share a rule. A rule takes more memory than everything else that is kept of a
// limit.
func TestLimitsShareRules(t *testing.T) {
	limiter, err := embedded.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	c, err := config.Load(t.Context(), []config.File{{Name: "f", Text: []byte(`
domain: d
descriptors:
  - {key: a, rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: b, rate_limit: {unit: minute, unit_multiplier: 60, requests_per_unit: 5}}
  - {key: c, rate_limit: {unit: hour, requests_per_unit: 6}}
  - {key: d, rate_limit: {unit: hour, requests_per_unit: 5, algorithm: sliding-log}}
  - {key: e, rate_limit: {unit: hour, requests_per_unit: 5, algorithm: sliding-log}}
  - {key: f, rate_limit: {unit: hour, requests_per_unit: 5, outage: deny}}
  - {key: g, rate_limit: {unit: day, requests_per_unit: 5}}
`)}}, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := New(Limiters{All: limiter}, &stats.Set{}, Options{}).Load(c); err != nil {
		t.Fatal(err)
	}
	limits := c.Limits()
	for i, want := range []int{0, 0, 2, 3, 3, 5, 6} { // the first limit with the same rule
		for j := range limits {
			if (limits[i].Rule == limits[j].Rule) != (want == []int{0, 0, 2, 3, 3, 5, 6}[j]) {
				t.Errorf("limits %d and %d", i, j)
			}
		}
	}
}

// What a limiter keeps for a window ends with the configurations that have it. Otherwise the memory and the number of
// Prometheus's series grew with each new window, until the process ended.
func TestWindowsThatAreGoneAreForgotten(t *testing.T) {
	limiters := Limiters{}
	for _, l := range []**tiered.Limiter{&limiters.All, &limiters.PerSecond} {
		limiter, err := embedded.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer limiter.Close()
		*l = limiter
	}
	s := New(limiters, &stats.Set{}, Options{})
	load := func(descriptors string) {
		t.Helper()
		c, err := config.Load(t.Context(), []config.File{{Name: "f", Text: []byte("domain: d\ndescriptors:\n" + descriptors)}}, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Load(c); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		load(fmt.Sprintf("  - {key: a, rate_limit: {window: %ds, requests_per_unit: 5}}\n  - {key: b, rate_limit: {unit: second, requests_per_unit: 5}}\n", 61+i))
	}
	load("  - {key: a, rate_limit: {unit: hour, requests_per_unit: 5}}\n")
	names := func() (names []string) {
		for _, l := range []*tiered.Limiter{limiters.All, limiters.PerSecond} {
			for _, r := range l.Stats().Rules {
				names = append(names, r.Name)
			}
		}
		return names
	}
	redistest.Eventually(t, "the limiters keep only the window of an hour", func() bool {
		runtime.GC() // finds the rules that nothing uses any more
		return slices.Equal(names(), []string{time.Hour.String()})
	})
}
