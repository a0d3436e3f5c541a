package stats

import (
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Histogram counts durations.
type Histogram struct {
	counts [Times]atomic.Uint64
	nanos  atomic.Int64
}

var bounds = [...]time.Duration{
	250 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, time.Second,
}

// Observe counts one duration.
func (h *Histogram) Observe(d time.Duration) {
	i := 0
	for i < len(bounds) && d > bounds[i] {
		i++
	}
	h.counts[i].Add(1)
	h.nanos.Add(int64(d))
}

// Times is the number of buckets of a histogram.
const Times = len(bounds) + 1

// Bucket is the number of durations above the previous bucket's bound and up to this one's. Durations above all
// bounds are counted in one more bucket, which has the last bound.
type Bucket struct {
	Bound time.Duration
	Count uint64
}

// Buckets returns all buckets, by ascending bound.
func (h *Histogram) Buckets() (all [Times]Bucket) {
	for i := range all {
		all[i] = Bucket{bounds[min(i, len(bounds)-1)], h.counts[i].Load()}
	}
	return all
}

// The names are those that envoyproxy/ratelimit's mapping to Prometheus produces.
var (
	ofLimit = func(counter string) *prometheus.Desc {
		return prometheus.NewDesc("ratelimit_service_rate_limit_"+counter,
			"Hits of a limit, by domain and the first two descriptors of its path.", []string{"domain", "key1", "key2"}, nil)
	}
	limitDescs = map[string]*prometheus.Desc{
		"total_hits": ofLimit("total_hits"), "over_limit": ofLimit("over_limit"), "near_limit": ofLimit("near_limit"),
		"within_limit": ofLimit("within_limit"), "shadow_mode": ofLimit("shadow_mode"),
		"over_limit_with_local_cache": ofLimit("over_limit_with_local_cache"),
	}
	errorsDesc = prometheus.NewDesc("ratelimit_service_should_rate_limit_error",
		"Calls that ended with an error.", []string{"err_type"}, nil)
	requestsDesc = prometheus.NewDesc("ratelimit_service_total_requests", "Calls.", []string{"grpc_method"}, nil)
	timeDesc     = prometheus.NewDesc("ratelimit_service_response_time_seconds", "Duration of calls.", []string{"grpc_method"}, nil)
	successDesc  = prometheus.NewDesc("ratelimit_service_config_load_success", "Configurations loaded.", nil, nil)
	failureDesc  = prometheus.NewDesc("ratelimit_service_config_load_error", "Configurations that could not be loaded.", nil, nil)
	shadowDesc   = prometheus.NewDesc("ratelimit_service_global_shadow_mode", "Requests over a limit that the global shadow mode allowed.", nil, nil)
	notFoundDesc = prometheus.NewDesc("ratelimit_service_domain_not_found", "Descriptors of domains that are not configured.", nil, nil)
	degradedDesc = prometheus.NewDesc("tierlimit_serve_degraded_total", "Requests with a descriptor that was decided without Redis.", nil, nil)
	leftOutDesc  = prometheus.NewDesc("tierlimit_serve_dynamic_names_left_out_total", "Hits counted under their descriptor's name without the value, because too many names contain values.", nil, nil)
)

// series is a counter that sums all paths with the same first two descriptors.
type series struct{ counter, domain, key1, key2 string }

// series returns the series that contains a counter of the limit.
func (l *Limit) series(counter string) series {
	path := strings.SplitN(strings.ToValidUTF8(l.Name, "?"), ".", 4)
	path = append(path, "", "", "")
	return series{counter, path[0], path[1], path[2]}
}

// eachSeries calls f with each counter and the series that contains it.
func (l *Limit) eachSeries(f func(of series, value uint64)) {
	of := l.series("")
	l.each(func(name string, value uint64) {
		of.counter = name
		f(of, value)
	})
}

// sums returns the sums of all paths with the same first two descriptors. They contain the counts of names that are no
// longer kept, because a sum that became smaller would look like a counter that was reset.
func (s *Set) sums() map[series]uint64 {
	s.mu.Lock() // a name that is forgotten meanwhile would be counted twice
	defer s.mu.Unlock()
	sums := make(map[series]uint64)
	maps.Copy(sums, s.gone)
	for _, l := range s.all() {
		l.eachSeries(func(of series, value uint64) { sums[of] += value })
	}
	return sums
}

// endSums forgets the sums that no name contributes to any more. The caller holds mu.
func (s *Set) endSums() {
	left := make(map[series]bool) // with any counter
	for _, l := range s.all() {
		left[l.series("")] = true
	}
	maps.DeleteFunc(s.gone, func(of series, _ uint64) bool {
		of.counter = ""
		return !left[of]
	})
}

// Describe implements prometheus.Collector.
func (s *Set) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range limitDescs {
		descs <- d
	}
	for _, d := range []*prometheus.Desc{errorsDesc, requestsDesc, timeDesc, successDesc, failureDesc, shadowDesc, notFoundDesc, degradedDesc, leftOutDesc} {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (s *Set) Collect(metrics chan<- prometheus.Metric) {
	counter := func(desc *prometheus.Desc, value uint64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(value), labels...)
	}
	sums := s.sums()
	for of, sum := range sums {
		hits := of
		if hits.counter = "total_hits"; sums[hits] == 0 {
			continue // as in envoyproxy/ratelimit: a configuration may have many unused limits
		}
		counter(limitDescs[of.counter], sum, of.domain, of.key1, of.key2)
	}
	counter(errorsDesc, s.RedisError.Load(), "redis_error")
	counter(errorsDesc, s.ServiceError.Load(), "service_error")
	counter(requestsDesc, s.TotalRequests.Load(), "ShouldRateLimit")
	counter(successDesc, s.ConfigLoadSuccess.Load())
	counter(failureDesc, s.ConfigLoadError.Load())
	counter(shadowDesc, s.GlobalShadowMode.Load())
	counter(notFoundDesc, s.NotFound.Load())
	counter(degradedDesc, s.Degraded.Load())
	counter(leftOutDesc, s.DynamicLeftOut.Load())
	buckets, total := make(map[float64]uint64, len(bounds)), uint64(0)
	for i, bound := range bounds {
		total += s.ResponseTime.counts[i].Load()
		buckets[bound.Seconds()] = total
	}
	total += s.ResponseTime.counts[len(bounds)].Load()
	metrics <- prometheus.MustNewConstHistogram(timeDesc, total, time.Duration(s.ResponseTime.nanos.Load()).Seconds(), buckets, "ShouldRateLimit")
}
