package service

import (
	"testing"

	"github.com/tierlimit/tierlimit/embedded"
	"github.com/tierlimit/tierlimit/serve/internal/config"
	"github.com/tierlimit/tierlimit/serve/internal/stats"
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
