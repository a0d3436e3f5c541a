package httplimit

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// heap returns the size of the heap in use, after a garbage collection.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A client that invents a new identity with every request, in every header that has ever carried one,
// gets one quota. This holds over its own connection, and through a proxy that appends the client's
// address.
func TestSpoofedHeadersGiveNoSecondQuota(t *testing.T) {
	const quota, requests = 5, 300
	for header, own := range map[string]string{"X-Forwarded-For": "203.0.113.9", "Forwarded": "for=203.0.113.9"} {
		for remote, behindProxy := range map[string]bool{"203.0.113.9:4711": false, "10.0.0.1:4711": true} {
			l := newLimiter(t)
			h := newMiddleware(t, l, Limit(newRule(t, l, "login", limit.PerHour(quota)),
				newProxies(t, header, "10.0.0.0/8").ClientAddress))(done)
			allowed := 0
			for i := range requests {
				invented := fmt.Sprintf("198.51.%d.%d", i/256, i%256)
				w := get(h, from(remote), func(r *http.Request) {
					for _, name := range []string{"X-Forwarded-For", "X-Real-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "X-Client-Ip", "Client-Ip"} {
						r.Header.Set(name, invented)
					}
					r.Header.Set("Forwarded", "for="+invented+`;x="`)
					if behindProxy {
						r.Header.Set(header, r.Header.Get(header)+", "+own)
					}
				})
				if w.Code == 200 {
					allowed++
				}
			}
			if allowed != quota {
				t.Errorf("%s from %s: %d of %d requests were let through, want %d", header, remote, allowed, requests, quota)
			}
		}
	}
}

// A client that uses many of its IPv6 network's 2^64 addresses gets one quota.
func TestAnIPv6NetworkIsOneClient(t *testing.T) {
	l := newLimiter(t)
	h := newMiddleware(t, l, Limit(newRule(t, l, "login", limit.PerHour(5)), ClientAddress))(done)
	allowed := 0
	for i := range 100 {
		allowed += statuses(h, 1, from(fmt.Sprintf("[2001:db8::%x:%x]:80", i*7919%65536, i)))[200]
	}
	if allowed != 5 {
		t.Errorf("%d requests were let through, want 5", allowed)
	}
}

// 10,000 values of a header have 10,000 quotas, but do not evade the limit on the client's address.
// Neither many keys nor huge keys fill this process or a key of Redis.
func TestManyAndHugeKeysStayBounded(t *testing.T) {
	const values = 10_000
	client, prefix := redistest.Shared(t).Client(t), redistest.Prefix()
	l := newLimiterOn(t, client, tiered.Prefix(prefix))
	byKey, byAddress := newRule(t, l, "key", limit.PerHour(1)), newRule(t, l, "address", limit.PerHour(100))
	h := newMiddleware(t, l, Limit(byKey, Header("Api-Key")), Limit(byAddress, ClientAddress))(done)
	alone := newMiddleware(t, l, Limit(newRule(t, l, "alone", limit.PerHour(1)), Join(Header("Api-Key"), ClientAddress)))(done)
	get(h, with("Api-Key", "warm"))
	get(alone, with("Api-Key", "warm"))

	before, allowed := heap(), 1
	huge := strings.Repeat("x", 100_000)
	for i := range values {
		key := fmt.Sprint(i)
		if i%10 == 0 {
			key = huge + key
		}
		allowed += statuses(h, 1, with("Api-Key", key))[200]
		if i < values/10 {
			get(alone, with("Api-Key", key))
			get(alone, with("Api-Key", key)) // denied, and remembered
		}
	}
	if allowed != 100 {
		t.Errorf("%d requests of one address were let through, want 100", allowed)
	}
	// 1,100 keys of 100 kB each would be 110 MB.
	if grown := heap() - before; grown > 8<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	longest := 0
	ctx := context.Background()
	for keys := client.Scan(ctx, 0, prefix+":*", 1000).Iterator(); keys.Next(ctx); {
		longest = max(longest, len(keys.Val()))
	}
	if longest == 0 || longest > 150 {
		t.Errorf("the longest key in Redis has %d bytes", longest)
	}
}

// Clients that send and read slowly do not delay other clients' decisions. When they have gone, they
// leave nothing behind.
func TestSlowClients(t *testing.T) {
	const clients, quota = 200, 50
	l := newLimiter(t)
	var reached atomic.Int64
	release := make(chan struct{})
	limits := newMiddleware(t, l, Limit(newRule(t, l, "upload", limit.PerHour(quota)), Everyone,
		Settle(func(*http.Request, Response) int64 { return 1 })))
	server := httptest.NewServer(limits(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/fast" {
			return
		}
		reached.Add(1)
		_, _ = io.Copy(io.Discard, r.Body) // waits for data that never comes
		<-release
	})))
	goroutines := runtime.NumGoroutine()
	conns := make([]net.Conn, clients)
	for i := range conns {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = conn
		_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nslow")
	}
	redistest.Eventually(t, "the quota to be used up", func() bool { return reached.Load() == quota })
	start := time.Now()
	response, err := http.Get(server.URL + "/fast")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if took := time.Since(start); response.StatusCode != 429 || took > 20*time.Second {
		t.Errorf("beside %d slow clients a request got %d after %v", clients, response.StatusCode, took)
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
	close(release)
	server.Close()
	http.DefaultClient.CloseIdleConnections()
	if got := reached.Load(); got != quota {
		t.Errorf("%d requests were let through, want %d", got, quota)
	}
	redistest.Eventually(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= goroutines })
}
