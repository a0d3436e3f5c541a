package tiered

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// BenchmarkAllow measures a whole decision by Redis. See bench/ for a comparison with other limiters.
func BenchmarkAllow(b *testing.B) {
	for _, callers := range []int{1, 64, 512} {
		for _, keys := range []int{1, 100_000} {
			b.Run(fmt.Sprintf("callers=%d/keys=%d", callers, keys), func(b *testing.B) {
				server := redistest.Shared(b)
				benchmarkAllow(b, server.Client(b, func(o *redis.Options) { o.ContextTimeoutEnabled = true }), callers, keys)
			})
		}
	}
}

// BenchmarkMasters measures decisions on many keys, on one node and on Clusters. It reports the processor time of
// all masters per decision, and the busiest master's time relative to the mean. If neither grows with the number
// of masters, and each master has a core of its own, throughput is proportional to the number of masters.
func BenchmarkMasters(b *testing.B) {
	measure := func(b *testing.B, client redis.UniversalClient, masters []*redistest.Server, options ...Option) {
		before := cpuOf(b, masters)
		benchmarkAllow(b, client, 512, 100_000, options...)
		sum, most := 0.0, 0.0
		for i, seconds := range cpuOf(b, masters) {
			sum, most = sum+seconds-before[i], max(most, seconds-before[i])
		}
		b.ReportMetric(sum*1e6/float64(b.N), "redis-µs/op")
		b.ReportMetric(most*float64(len(masters))/sum, "busiest/mean")
	}
	b.Run("one node", func(b *testing.B) {
		server := redistest.Start(b)
		measure(b, server.Client(b, func(o *redis.Options) { o.ContextTimeoutEnabled = true }), []*redistest.Server{server})
	})
	for _, masters := range []int{1, 3} {
		for _, tags := range []int{0, 8, 16, 64} {
			name := fmt.Sprintf("Cluster of %d/%d hash tags each", masters, tags)
			var options []Option
			if tags > 0 {
				options = append(options, HashTags(tags*masters))
			}
			b.Run(name, func(b *testing.B) {
				cluster := redistest.StartCluster(b, masters)
				measure(b, cluster.Client(b), cluster.Nodes(), options...)
			})
		}
	}
}

// benchmarkAllow measures decisions by the given number of concurrent callers over the given number of keys.
func benchmarkAllow(b *testing.B, client redis.UniversalClient, callers, keys int, options ...Option) {
	l, err := New(client, append(options, Prefix(redistest.Prefix()), Deadline(time.Second))...)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	r, err := l.Rule("r", limit.PerSecond(1000).WithBurst(1_000_000_000), Use(limit.GCRA()))
	if err != nil {
		b.Fatal(err)
	}
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprintf("user:%d", i)
	}
	b.ReportAllocs()
	b.SetParallelism(max(1, callers/runtime.GOMAXPROCS(0)))
	var caller atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		from := int(caller.Add(1)) * 104729
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		for i := 0; pb.Next(); i++ {
			if d, err := r.Allow(ctx, names[(from+i*7919)%keys]); err != nil || !d.Allowed {
				b.Errorf("%+v, %v", d, err)
				return
			}
		}
	})
}

// cpuOf returns the processor time that each server has used, in seconds.
func cpuOf(b *testing.B, servers []*redistest.Server) (seconds []float64) {
	for _, server := range servers {
		info := server.Client(b).Info(b.Context(), "cpu").Val()
		sum := 0.0
		for _, field := range regexp.MustCompile(`used_cpu_(?:user|sys):([0-9.]+)`).FindAllStringSubmatch(info, -1) {
			part, err := strconv.ParseFloat(field[1], 64)
			if err != nil {
				b.Fatal(err)
			}
			sum += part
		}
		seconds = append(seconds, sum)
	}
	return seconds
}

// BenchmarkDenied measures a decision from a remembered denial, which must cost little more than reading a cache
// and a clock.
func BenchmarkDenied(b *testing.B) {
	l := newLimiterOn(b, redistest.Shared(b).Client(b), redistest.Prefix(), Deadline(time.Second))
	r := newRule(b, l, "r", limit.PerHour(1), Use(limit.GCRA()))
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	deny := func() limit.Decision {
		d, err := r.Allow(ctx, "user:12345")
		if err != nil {
			b.Fatal(err)
		}
		return d
	}
	deny()
	b.ReportAllocs()
	for b.Loop() {
		if deny().Allowed {
			b.Fatal("allowed")
		}
	}
}
