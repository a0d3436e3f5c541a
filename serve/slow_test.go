package serve

import (
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// slowPath is a proxy to Redis that delays answers.
type slowPath struct {
	listener net.Listener
	late     atomic.Int64 // the delay in ns
}

func startSlowPath(t *testing.T, redis string) *slowPath {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	p := &slowPath{listener: listener}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", redis)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(server, client)
				_ = server.Close()
			}()
			go p.answers(client, server)
		}
	}()
	return p
}

// answers forwards each piece of an answer when it is due, and keeps reading meanwhile.
func (p *slowPath) answers(client, server net.Conn) {
	type piece struct {
		text []byte
		due  time.Time
	}
	pieces := make(chan piece, 1000)
	go func() {
		defer client.Close()
		for next := range pieces {
			time.Sleep(time.Until(next.due))
			_, _ = client.Write(next.text)
		}
	}()
	defer close(pieces)
	for {
		text := make([]byte, 64<<10)
		n, err := server.Read(text)
		if err != nil {
			return
		}
		pieces <- piece{text[:n], time.Now().Add(time.Duration(p.late.Load()))}
	}
}

func (p *slowPath) addr() string          { return p.listener.Addr().String() }
func (p *slowPath) delay(d time.Duration) { p.late.Store(int64(d)) }

// A Redis that answers too late causes no errors, and no request waits for its answers. When its answers are in time
// again, it decides again.
func TestSlowRedis(t *testing.T) {
	const deadline, late = 200 * time.Millisecond, 2 * time.Second
	redis := startSlowPath(t, redistest.Start(t).Addr())
	server := startOn(t, redis.addr(), configDir(t, lossy), "TIERLIMIT_DEADLINE="+deadline.String())
	client := server.client(t)
	expect(t, client, asking("d counted=a"), "OK: OK 39")
	redis.delay(late)
	for range 20 {
		began := time.Now()
		a := ask(t, client, asking("d counted=a log=a"))
		if a.err != nil {
			t.Fatal(a.err)
		}
		if took := time.Since(began); took >= late {
			t.Errorf("a decision took %v: it has waited for Redis", took)
		}
	}
	if server.stats.Degraded.Load() < 20 {
		t.Errorf("%d of 20 requests were decided without Redis", server.stats.Degraded.Load())
	}
	redis.delay(0)
	redistest.Eventually(t, "Redis decides again", func() bool { return !server.limiters.All.Degraded() })
	if a := ask(t, client, asking("d counted=other")); a.err != nil {
		t.Error(a.err)
	}
}

// All trips of a request share one deadline. A request takes no longer, except for its way through gRPC and on a busy
// machine. If each trip had the deadline to itself, two late trips would take twice as long. What Redis has not
// decided by then is decided without it, which is not an error.
func TestRequestsOfSeveralTripsHaveOneDeadline(t *testing.T) {
	t.Parallel()
	const deadline = 2 * time.Second // a busy machine may be late by as much
	dir := configDir(t, lossy+"  - {key: second, rate_limit: {unit: second, requests_per_unit: 1000}}\n")
	back := asking("d counted=a log=a log=b counted=b")
	back.Descriptors[1].IsNegativeHits, back.Descriptors[3].IsNegativeHits = true, true
	for name, request := range map[string]*ratelimitv3.RateLimitRequest{
		"two kinds of limits": asking("d counted=a log=a"),
		"hits given back":     back,
		"a second Redis":      asking("d counted=a second=a log=a"),
		"many descriptors":    asking("d" + strings.Repeat(" counted=a log=a", 140)),
	} {
		for _, late := range []time.Duration{deadline * 2 / 3, 6 * deadline} { // one trip is in time, or none
			t.Run(name+", answers late by "+late.String(), func(t *testing.T) {
				t.Parallel()
				redis, perSecond := startSlowPath(t, redistest.Shared(t).Addr()), startSlowPath(t, redistest.Shared(t).Addr())
				server := startOn(t, redis.addr(), dir, "TIERLIMIT_DEADLINE="+deadline.String(), "CACHE_KEY_PREFIX="+redistest.Prefix(),
					"REDIS_PERSECOND=true", "REDIS_PERSECOND_SOCKET_TYPE=tcp", "REDIS_PERSECOND_URL="+perSecond.addr())
				client := server.client(t)
				expect(t, client, asking("d counted=warm log=warm second=warm"), "OK: OK 39, OK 39, OK 999")
				redis.delay(late)
				perSecond.delay(late)
				began := time.Now()
				a := ask(t, client, request)
				if took := time.Since(began); a.err != nil || took >= 2*deadline {
					t.Errorf("%v after %v", a.err, took)
				}
				if server.stats.Degraded.Load() != 1 {
					t.Error("all was decided by Redis")
				}
				redis.delay(0) // so that the server leaves the fleet in time
				perSecond.delay(0)
			})
		}
	}
}
