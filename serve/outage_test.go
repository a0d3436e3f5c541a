package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

const lossy = `
domain: d
descriptors:
  - {key: counted, rate_limit: {unit: year, requests_per_unit: 40}}
  - {key: log, rate_limit: {unit: hour, requests_per_unit: 40, algorithm: sliding-log}}
  - {key: open, rate_limit: {unit: hour, requests_per_unit: 1, outage: allow}}
  - {key: closed, rate_limit: {unit: hour, requests_per_unit: 100, outage: deny}}
`

// The loss of Redis is not an error: this instance's share of each limit decides, and a header and a metric say so.
// When Redis is back, it decides again, and knows what was granted meanwhile.
func TestRedisKilled(t *testing.T) {
	redis := redistest.Start(t)
	server := startOn(t, redis.Addr(), configDir(t, lossy), "TIERLIMIT_DEADLINE=100ms", "LIMIT_RESPONSE_HEADERS_ENABLED=true", "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION=true")
	client := server.client(t)
	expect(t, client, asking("d counted=a log=a"), "OK: OK 39, OK 39")
	if code, _ := get(t, server, "http", "/healthcheck"); code != http.StatusOK {
		t.Errorf("health %d", code)
	}
	redis.Kill()
	redistest.Eventually(t, "Redis counts as lost", func() bool {
		ask(t, client, asking("d counted=other"))
		return server.limiters.All.Degraded()
	})
	granted := map[string]int{}
	for range 60 {
		for _, key := range []string{"counted", "log", "open", "closed"} {
			a := ask(t, client, asking("d "+key+"=a"))
			if a.err != nil {
				t.Fatal(a.err)
			}
			if a.response.GetOverallCode() == ratelimitv3.RateLimitResponse_OK {
				granted[key]++
			}
			if headers := a.response.GetResponseHeadersToAdd(); headers[len(headers)-1].GetKey() != "x-ratelimit-degraded" {
				t.Fatalf("%v", headers)
			}
		}
	}
	for key, want := range map[string]int{"counted": 39, "log": 39, "open": 60, "closed": 0} {
		if granted[key] != want {
			t.Errorf("%s: %d of 60 granted, want %d", key, granted[key], want)
		}
	}
	if server.stats.Degraded.Load() < 240 {
		t.Error("not counted")
	}
	if code, _ := get(t, server, "http", "/healthcheck"); code != http.StatusInternalServerError {
		t.Errorf("health %d", code)
	}
	redis.Restart()
	redistest.Eventually(t, "Redis decides again", func() bool { return !server.limiters.All.Degraded() })
	redistest.Eventually(t, "it knows what was granted", func() bool {
		return short(ask(t, client, asking("d counted=b"))) == "OK: OK 39" || !strings.HasPrefix(short(ask(t, client, asking("d log=a"))), "OK")
	})
	if got := short(ask(t, client, asking("d counted=a"))); got != "OVER: OVER 0" {
		t.Errorf("after the outage: %s", got)
	}
}

// A service that ends just after Redis has come back charges Redis for what it granted meanwhile, although its
// limiter does not know yet that Redis is back.
func TestEndChargesRedis(t *testing.T) {
	redis := redistest.Start(t)
	const keys = 20
	root, prefix := configDir(t, lossy), "CACHE_KEY_PREFIX="+redistest.Prefix()
	server := startOn(t, redis.Addr(), root, prefix, "TIERLIMIT_DEADLINE=100ms")
	client := server.client(t)
	redis.Kill()
	redistest.Eventually(t, "Redis counts as lost", func() bool {
		ask(t, client, asking("d log=other"))
		return server.limiters.All.Degraded()
	})
	for key := range keys {
		for range 3 {
			if a := ask(t, client, asking(fmt.Sprintf("d counted=%d", key))); a.response.GetOverallCode() != ratelimitv3.RateLimitResponse_OK {
				t.Fatal(a)
			}
		}
	}
	redis.Restart()
	began := time.Now()
	server.Close()
	if took := time.Since(began); took > endWithin {
		t.Errorf("it took %v", took)
	}
	client = startOn(t, redis.Addr(), root, prefix).client(t)
	for key := range keys {
		expect(t, client, asking(fmt.Sprintf("d counted=%d", key)), "OK: OK 36")
	}
}

// After Redis has lost its data, an answer says how much this instance still grants, and not what Redis would.
func TestRemainingAfterLossOfData(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	root, prefix := configDir(t, lossy), "CACHE_KEY_PREFIX="+redistest.Prefix()
	server, other := startOn(t, redis.Addr(), root, prefix), startOn(t, redis.Addr(), root, prefix)
	client := server.client(t)
	redistest.Eventually(t, "both know of each other", func() bool {
		return server.limiters.All.Stats().FleetSize == 2 && other.limiters.All.Stats().FleetSize == 2
	})
	expect(t, client, asking("d counted=a"), "OK: OK 39")
	redis.Kill()
	redistest.Eventually(t, "Redis counts as lost", func() bool {
		ask(t, client, asking("d log=other"))
		return server.limiters.All.Degraded()
	})
	redis.Restart()
	redistest.Eventually(t, "Redis decides again", func() bool { return !server.limiters.All.Degraded() })
	var request *ratelimitv3.RateLimitRequest
	var left uint32
	asked := 0
	redistest.Eventually(t, "the instance knows that data was lost, and says that only its share is left", func() bool {
		asked++
		request = asking(fmt.Sprintf("d counted=%d", asked))
		left = ask(t, client, request).response.GetStatuses()[0].GetLimitRemaining()
		return left < 20
	})
	granted := uint32(0)
	for ask(t, client, request).response.GetOverallCode() == ratelimitv3.RateLimitResponse_OK {
		granted++
	}
	if granted != left {
		t.Errorf("%d were granted, when %d should have been left", granted, left)
	}
}

// A service that ends while Redis is lost waits for Redis only a few seconds.
func TestEndWithoutRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	server := startOn(t, redis.Addr(), configDir(t, lossy), "TIERLIMIT_DEADLINE=100ms")
	client := server.client(t)
	redis.Kill()
	redistest.Eventually(t, "Redis counts as lost", func() bool {
		ask(t, client, asking("d counted=a"))
		return server.limiters.All.Degraded()
	})
	ask(t, client, asking("d counted=a"))
	if server.limiters.All.Stats().UnchargedUnits == 0 {
		t.Error("nothing is to be charged")
	}
	began := time.Now()
	server.Close()
	if took := time.Since(began); took > lostWithin+3*time.Second {
		t.Errorf("it took %v", took)
	}
}

// A Redis that hangs costs no caller more than the deadline, and no caller gets an error within the time that Envoy
// waits.
func TestRedisHangs(t *testing.T) {
	redis := redistest.Start(t)
	const deadline = 300 * time.Millisecond
	server := startOn(t, redis.Addr(), configDir(t, lossy), "TIERLIMIT_DEADLINE="+deadline.String())
	client := server.client(t)
	ask(t, client, asking("d counted=a"))
	redis.Pause()
	defer redis.Resume()
	var mu sync.Mutex
	var took []time.Duration
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			for range 40 {
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 20*deadline)
				_, err := client.ShouldRateLimit(ctx, asking("d counted=a log=a"))
				cancel()
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	slices.Sort(took)
	if median := took[len(took)/2]; median > deadline {
		t.Errorf("half of the decisions took %v and more", median)
	}
	if most := took[len(took)-1]; most > 5*deadline {
		t.Errorf("a decision took %v, with a deadline of %v", most, deadline)
	}
}

// A service starts without Redis, and decides.
func TestStartsWithoutRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Kill()
	server := startOn(t, redis.Addr(), configDir(t, lossy))
	if got := short(ask(t, server.client(t), asking("d open=a"))); got != "OK: OK 0" {
		t.Error(got)
	}
	if code, _ := get(t, server, "http", "/healthcheck"); code != http.StatusOK {
		t.Errorf("health %d", code)
	}
}

// An instance that starts without Redis assumes a fleet and grants only its share. It assumes ten instances unless a
// setting or a file says otherwise (law 11).
func TestFleetOfWhoStartsWithoutRedis(t *testing.T) {
	redis, prefix := redistest.Start(t), "CACHE_KEY_PREFIX="+redistest.Prefix()
	dir, file := configDir(t, lossy), filepath.Join(t.TempDir(), "fleet")
	const fleet = 3
	for range fleet {
		startOn(t, redis.Addr(), dir, prefix, "TIERLIMIT_FLEET_FILE="+file)
	}
	redistest.Eventually(t, "the file says how many there are", func() bool {
		text, _ := os.ReadFile(file)
		return strings.Contains(string(text), fmt.Sprintf(`"instances":%d,`, fleet))
	})
	redis.Kill()
	for _, c := range []struct {
		settings []string
		want     int
	}{
		{nil, 10},
		{[]string{"TIERLIMIT_FLEET_SIZE=1"}, 1},
		{[]string{"TIERLIMIT_FLEET_FILE=" + file}, fleet},
		{[]string{"TIERLIMIT_FLEET_FILE=" + file, "TIERLIMIT_FLEET_SIZE=6"}, 6},
		{[]string{"TIERLIMIT_FLEET_FILE=" + file + ".other"}, 10},
	} {
		server := startOn(t, redis.Addr(), dir, append(c.settings, prefix)...)
		if got := server.limiters.All.FleetSize(); got != c.want {
			t.Errorf("%q: a fleet of %d is assumed, want %d", c.settings, got, c.want)
		}
	}
}

// get returns the status code and body of one of the server's pages.
func get(t *testing.T, s *Server, what, path string) (code int, body string) {
	t.Helper()
	response, err := http.Get("http://" + s.Addr(what).String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// A configuration that is being read does not delay the end.
func TestEndWhileReading(t *testing.T) {
	t.Parallel()
	server := startOn(t, "", configDir(t, lossy), "REDIS_URL=")
	server.loading.Lock() // as during a load
	must(t, os.WriteFile(filepath.Join(server.settings.ConfigDir, "f0.yaml"), []byte(lossy+"  - {key: new}\n"), 0o600))
	time.Sleep(10 * server.settings.LookEvery)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.Close()
	}()
	select {
	case <-ended:
	case <-time.After(endWithin):
		t.Error("it has not ended")
	}
	errorsBefore := server.stats.ConfigLoadError.Load()
	server.loading.Unlock()
	server.following.Wait()
	if server.loaded != 1 || server.stats.ConfigLoadError.Load() != errorsBefore {
		t.Errorf("%d configurations were put in force, and %d failed", server.loaded, server.stats.ConfigLoadError.Load())
	}
}

// If a start is canceled while the configuration is read, Start returns an error and nothing listens.
func TestStartIsGivenUp(t *testing.T) {
	t.Parallel()
	s, _, err := FromEnvironment([]string{"RUNTIME_ROOT=" + configDir(t, lossy), "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1", "PORT=0", "GRPC_PORT=0", "DEBUG_PORT=0", "USE_PROMETHEUS=false", "USE_STATSD=false"})
	must(t, err)
	var log strings.Builder
	ctx, giveUp := context.WithCancel(t.Context())
	giveUp()
	if server, err := Start(ctx, s, slog.New(slog.NewTextHandler(&log, nil))); server != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", server, err)
	}
	if strings.Contains(log.String(), "listening") || strings.Contains(log.String(), "cannot be loaded") {
		t.Error(log.String())
	}
}

// A service with two Redis servers that both hang starts as soon as with one: it does not wait for one of them before
// it asks the other.
func TestStartsWithTwoThatHang(t *testing.T) {
	t.Parallel()
	var apart time.Duration
	for range 5 { // a busy machine may keep a goroutine waiting for as long, but not each time
		if apart = startWithTwoThatHang(t); apart <= 1500*time.Millisecond {
			return
		}
	}
	t.Errorf("they were asked %v apart", apart) // two seconds, if it waits for the first
}

// startWithTwoThatHang returns how much later than one of the servers the other was asked.
func startWithTwoThatHang(t *testing.T) time.Duration {
	t.Helper()
	var listeners []net.Listener // they accept connections and never answer
	for range 2 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		defer listener.Close()
		listeners = append(listeners, listener)
	}
	s, _, err := FromEnvironment([]string{
		"RUNTIME_ROOT=" + configDir(t, lossy), "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1", "PORT=0", "GRPC_PORT=0", "DEBUG_PORT=0", "USE_PROMETHEUS=false", "USE_STATSD=false",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + listeners[0].Addr().String(),
		"REDIS_PERSECOND=true", "REDIS_PERSECOND_SOCKET_TYPE=tcp", "REDIS_PERSECOND_URL=" + listeners[1].Addr().String(),
	})
	must(t, err)
	asked := make(chan time.Time, len(listeners))
	for _, listener := range listeners {
		go func() {
			connection, err := listener.Accept()
			asked <- time.Now()
			if err == nil {
				defer connection.Close()
				_, _ = io.Copy(io.Discard, connection)
			}
		}()
	}
	server, err := Start(t.Context(), s, slog.New(slog.DiscardHandler))
	must(t, err)
	defer server.Close()
	if got := short(ask(t, server.client(t), asking("d open=a"))); got != "OK: OK 0" {
		t.Error(got)
	}
	return (<-asked).Sub(<-asked).Abs()
}
