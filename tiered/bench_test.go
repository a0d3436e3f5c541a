package tiered

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// BenchmarkAllow is the whole way of a decision that Redis makes. See bench/ for how
// it compares with others.
func BenchmarkAllow(b *testing.B) {
	for _, callers := range []int{1, 64, 512} {
		for _, keys := range []int{1, 100_000} {
			b.Run(fmt.Sprintf("callers=%d/keys=%d", callers, keys), func(b *testing.B) {
				server := redistest.Shared(b)
				l, err := New(server.Client(b, func(o *redis.Options) { o.ContextTimeoutEnabled = true }), Prefix(redistest.Prefix()), Deadline(time.Second))
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
				b.SetParallelism(callers / 2)
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
			})
		}
	}
}

// BenchmarkDenied is a decision from a remembered denial: it must cost little more
// than reading a cache and a clock.
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
