package httplimit

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// writer is a response writer that costs nothing, so that only the middleware is measured.
type writer struct{ header http.Header }

func (w *writer) Header() http.Header         { return w.header }
func (w *writer) Write(p []byte) (int, error) { return len(p), nil }
func (w *writer) WriteHeader(int)             {}

// BenchmarkHandler measures a middleware around a handler that does nothing. "rule alone" is the same
// decision without the middleware. Without Redis (open breaker), decisions cost the least, so the cost
// of the middleware shows best.
func BenchmarkHandler(b *testing.B) {
	online := newLimiter(b)
	gone := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialTimeout: 50 * time.Millisecond, DialerRetries: 1})
	b.Cleanup(func() { _ = gone.Close() })
	offline := newLimiterOn(b, gone)
	const plenty = 1 << 30
	settled := []LimitOption{Settle(func(*http.Request, Response) int64 { return 1 })}
	group := func(l *tiered.Limiter, n int) (limits []Option) {
		for i := range n {
			limits = append(limits, Limit(newRule(b, l, fmt.Sprint("group", n, "-", i), limit.PerHour(plenty)), ClientAddress))
		}
		return limits
	}
	alone := newRule(b, offline, "alone", limit.PerHour(plenty))
	full := newRule(b, online, "full", limit.PerHour(1))
	for _, c := range []struct {
		name string
		h    http.Handler
	}{
		{"bare", done},
		{"without Redis/rule alone", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = alone.Allow(r.Context(), "192.0.2.1")
		})},
		{"without Redis/1 limit", newMiddleware(b, offline, group(offline, 1)...)(done)},
		{"without Redis/1 limit, X-RateLimit", newMiddleware(b, offline, append(group(offline, 1), Headers(XHeaders))...)(done)},
		{"without Redis/1 limit, no headers", newMiddleware(b, offline, append(group(offline, 1), Headers(NoHeaders))...)(done)},
		{"without Redis/1 limit, settled", newMiddleware(b, offline, Limit(newRule(b, offline, "settled", limit.PerHour(plenty)), ClientAddress, settled...))(done)},
		{"without Redis/2 limits", newMiddleware(b, offline, group(offline, 2)...)(done)},
		{"Redis/1 limit", newMiddleware(b, online, group(online, 1)...)(done)},
		{"Redis/2 limits", newMiddleware(b, online, group(online, 2)...)(done)},
		{"remembered denial", newMiddleware(b, online, Limit(full, ClientAddress))(done)},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(context.Background())
			w := &writer{header: make(http.Header)}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				c.h.ServeHTTP(w, r)
			}
		})
	}
}

// BenchmarkClient measures finding a client's address behind two proxies.
func BenchmarkClient(b *testing.B) {
	for header, line := range map[string]string{
		"X-Forwarded-For": "198.51.100.1, 2001:db8::9, 10.0.0.2",
		"Forwarded":       `for=198.51.100.1, for="[2001:db8::9]:4711";proto=https, for=10.0.0.2`,
	} {
		b.Run(header, func(b *testing.B) {
			p := newProxies(b, header, "10.0.0.0/8")
			r := requestFrom("10.0.0.1:80", header, line)
			b.ReportAllocs()
			for b.Loop() {
				if p.ClientAddress(r) != "2001:db8::/64" {
					b.Fatal("wrong client")
				}
			}
		})
	}
}
