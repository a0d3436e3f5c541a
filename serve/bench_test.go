package serve

import (
	"testing"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// BenchmarkShouldRateLimit measures a call without gRPC, mainly its allocations.
func BenchmarkShouldRateLimit(b *testing.B) {
	const file = `
domain: d
descriptors:
  - {key: one, rate_limit: {unit: year, requests_per_unit: 4000000000}}
  - {key: two, rate_limit: {unit: year, requests_per_unit: 4000000000, algorithm: gcra}}
  - {key: denied, rate_limit: {unit: year, requests_per_unit: 0, algorithm: gcra}}
  - key: path
    value: /a
    descriptors: [{key: user, rate_limit: {unit: year, requests_per_unit: 4000000000}}]
`
	for name, c := range map[string]struct {
		request  string
		settings []string
	}{
		"one descriptor":    {"d one=a", nil},
		"nested":            {"d path=/a,user=ann", nil},
		"two descriptors":   {"d one=a path=/a,user=ann", nil},
		"all or none":       {"d two=a two=b", nil},
		"denied":            {"d denied=a", nil},
		"no limit":          {"d other=a", nil},
		"headers, metadata": {"d one=a", []string{"LIMIT_RESPONSE_HEADERS_ENABLED=true", "RESPONSE_DYNAMIC_METADATA=true"}},
	} {
		b.Run(name, func(b *testing.B) {
			settings := append([]string{"CACHE_KEY_PREFIX=" + redistest.Prefix()}, c.settings...)
			server := startOn(b, redistest.Shared(b).Addr(), configDir(b, file), settings...)
			request := asking(c.request)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := server.service.ShouldRateLimit(b.Context(), request); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
