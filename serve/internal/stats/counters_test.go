package stats

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Each counter is reported under its own name, to Prometheus and as text. Each number occurs once, so that no counter
// can be reported as another.
func TestEachCounterIsReportedAsItself(t *testing.T) {
	var s Set
	s.RedisError.Store(11)
	s.ServiceError.Store(12)
	s.ConfigLoadSuccess.Store(13)
	s.ConfigLoadError.Store(14)
	s.GlobalShadowMode.Store(15)
	s.Degraded.Store(16)
	s.DynamicLeftOut.Store(17)
	s.DomainNotFound("other", 18)
	s.TotalRequests.Store(19)
	l := s.Limit("d.k_v")
	l.TotalHits.Store(21)
	l.OverLimit.Store(22)
	l.NearLimit.Store(23)
	l.WithinLimit.Store(24)
	l.ShadowMode.Store(25)
	l.OverLimitWithLocalCache.Store(26)

	var text strings.Builder
	n, err := s.WriteTo(&text)
	if want := `ratelimit.service.call.should_rate_limit.redis_error: 11
ratelimit.service.call.should_rate_limit.service_error: 12
ratelimit.service.config_load_error: 14
ratelimit.service.config_load_success: 13
ratelimit.service.degraded: 16
ratelimit.service.domain_not_found: 18
ratelimit.service.dynamic_names_left_out: 17
ratelimit.service.global_shadow_mode: 15
ratelimit.service.rate_limit.d.k_v.near_limit: 23
ratelimit.service.rate_limit.d.k_v.over_limit: 22
ratelimit.service.rate_limit.d.k_v.over_limit_with_local_cache: 26
ratelimit.service.rate_limit.d.k_v.shadow_mode: 25
ratelimit.service.rate_limit.d.k_v.total_hits: 21
ratelimit.service.rate_limit.d.k_v.within_limit: 24
ratelimit.service.rate_limit.other.domain_not_found: 18
ratelimit_server.ShouldRateLimit.total_requests: 19
`; text.String() != want || n != int64(len(want)) || err != nil {
		t.Errorf("%d, %v:\n%s", n, err, text.String())
	}

	const limit, call = "d k_v  ", "ShouldRateLimit "
	for metric, want := range map[string]map[string]float64{
		"ratelimit_service_rate_limit_total_hits":                  {limit: 21},
		"ratelimit_service_rate_limit_over_limit":                  {limit: 22},
		"ratelimit_service_rate_limit_near_limit":                  {limit: 23},
		"ratelimit_service_rate_limit_within_limit":                {limit: 24},
		"ratelimit_service_rate_limit_shadow_mode":                 {limit: 25},
		"ratelimit_service_rate_limit_over_limit_with_local_cache": {limit: 26},
		"ratelimit_service_should_rate_limit_error":                {"redis_error ": 11, "service_error ": 12},
		"ratelimit_service_total_requests":                         {call: 19},
		"ratelimit_service_config_load_success":                    {"": 13},
		"ratelimit_service_config_load_error":                      {"": 14},
		"ratelimit_service_global_shadow_mode":                     {"": 15},
		"ratelimit_service_domain_not_found":                       {"": 18},
		"tierlimit_serve_degraded_total":                           {"": 16},
		"tierlimit_serve_dynamic_names_left_out_total":             {"": 17},
	} {
		if got := seriesOf(t, &s, metric); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", metric, got, want)
		}
	}
}

// Prometheus gets the number of all calls up to each bound, and a call that takes exactly as long as a bound counts
// there.
func TestResponseTimes(t *testing.T) {
	var s Set
	for _, took := range []time.Duration{0, 250 * time.Microsecond, 250*time.Microsecond + 1, 5 * time.Millisecond, time.Second, time.Second + 1, time.Minute} {
		s.ResponseTime.Observe(took)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(&s)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "ratelimit_service_response_time_seconds" {
			continue
		}
		h := f.GetMetric()[0].GetHistogram()
		var upTo []uint64
		for i, bucket := range h.GetBucket() {
			upTo = append(upTo, bucket.GetCumulativeCount())
			if bucket.GetUpperBound() != bounds[i].Seconds() {
				t.Errorf("bucket %d is up to %v", i, bucket.GetUpperBound())
			}
		}
		if fmt.Sprint(upTo) != "[2 3 3 3 4 4 4 4 4 4 5]" || h.GetSampleCount() != 7 || math.Abs(h.GetSampleSum()-62.0055) > 1e-6 {
			t.Error(upTo, h.GetSampleCount(), h.GetSampleSum())
		}
	}
	var counts []uint64
	for i, bucket := range s.ResponseTime.Buckets() {
		counts = append(counts, bucket.Count)
		if bucket.Bound != bounds[min(i, len(bounds)-1)] {
			t.Errorf("bucket %d is up to %v", i, bucket.Bound)
		}
	}
	if got := fmt.Sprint(counts); got != "[2 1 0 0 1 0 0 0 0 0 1 2]" {
		t.Error(got)
	}
}
