package tiered_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/standin"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// slowServer serves the requests of all connections one after the other, and each takes some time.
type slowServer struct {
	perByte time.Duration
	// rests returns when the server finishes a request that would otherwise end at the given time after its
	// start, because the server gets no processor for part of the time.
	rests func(at time.Duration) time.Duration

	mu    sync.Mutex // guards the rest
	start time.Time
	free  time.Duration // when the server is free, after the start
}

// slowConn is a connection on which a request arrives when the slow server would have served it.
type slowConn struct {
	net.Conn
	server *slowServer
	queue  chan slowRequest
}

type slowRequest struct {
	at   time.Time
	data []byte
}

func startStandin(t *testing.T) *standin.Server {
	t.Helper()
	s, err := standin.Start()
	if errors.Is(err, standin.ErrPlatform) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// open returns a limiter that asks a server as slowly as the slow server would answer.
func (s *slowServer) open(t *testing.T, inner *standin.Server, deadline time.Duration) *tiered.Limiter {
	t.Helper()
	l, err := tiered.Open(&redis.UniversalOptions{
		Addrs: []string{standin.Addr}, DisableIdentity: true,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			conn, err := inner.Dial()
			if err != nil {
				return nil, err
			}
			return s.slow(conn), nil
		},
	}, tiered.Deadline(deadline), tiered.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (s *slowServer) slow(inner net.Conn) net.Conn {
	c := &slowConn{Conn: inner, server: s, queue: make(chan slowRequest, 16)}
	go func() {
		for r := range c.queue {
			time.Sleep(time.Until(r.at))
			_, _ = inner.Write(r.data) // the client learns of errors when it reads
		}
		_ = inner.Close()
	}()
	return c
}

func (c *slowConn) Write(data []byte) (int, error) {
	s := c.server
	s.mu.Lock()
	if s.start.IsZero() {
		s.start = time.Now()
	}
	s.free = max(s.free, time.Since(s.start)) + 50*time.Microsecond + time.Duration(len(data))*s.perByte
	if s.rests != nil {
		s.free = s.rests(s.free)
	}
	at := s.start.Add(s.free)
	s.mu.Unlock()
	c.queue <- slowRequest{at, slices.Clone(data)}
	return len(data), nil
}

func (c *slowConn) Close() error {
	close(c.queue)
	return nil
}

// crowd makes calls, and counts how they are decided.
type crowd struct {
	rules []*tiered.Rule

	mu       sync.Mutex // guards the rest
	next     int
	byRedis  int
	without  int
	atOnce   int // the part of without that was decided at once
	errors   int
	slowest  time.Duration
	measured time.Time // later answers do not count
}

func (c *crowd) call(ctx context.Context) {
	c.mu.Lock()
	n := c.next
	c.next++
	c.mu.Unlock()
	began := time.Now()
	d, err := c.rules[n%len(c.rules)].Allow(ctx, fmt.Sprint("key ", n*7919%5000))
	took := time.Since(began)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slowest = max(c.slowest, took)
	switch {
	case err != nil:
		c.errors++
	case d.Tier != limit.TierRedis:
		c.without++
		if took == 0 {
			c.atOnce++
		}
	case time.Now().Before(c.measured):
		c.byRedis++
	}
}

// closed makes each caller call again and again. It returns the rate of Redis's answers.
func (c *crowd) closed(ctx context.Context, callers int, span time.Duration) float64 {
	c.byRedis, c.measured = 0, time.Now().Add(span)
	var running sync.WaitGroup
	for range callers {
		running.Go(func() {
			for time.Now().Before(c.measured) {
				c.call(ctx)
				time.Sleep(time.Microsecond)
			}
		})
	}
	running.Wait()
	return float64(c.byRedis) / span.Seconds()
}

// open makes calls at a given rate, whether or not earlier ones are answered. It returns the rate of Redis's
// answers.
func (c *crowd) open(ctx context.Context, rate float64, span time.Duration) float64 {
	c.byRedis, c.measured = 0, time.Now().Add(span)
	var running sync.WaitGroup
	began, made := time.Now(), 0
	for time.Now().Before(c.measured) {
		for ; float64(made) < rate*time.Since(began).Seconds(); made++ {
			running.Go(func() { c.call(ctx) })
		}
		time.Sleep(100 * time.Microsecond)
	}
	running.Wait()
	return float64(c.byRedis) / span.Seconds()
}

// Laws 6 and 7: if there are more calls than Redis can decide in time, Redis continues to decide as many as it
// can. The others are decided without Redis, most of them at once, and all before the deadline. The test runs in a
// bubble's time, so that Redis is too slow and not the machine that runs the test.
func TestLaws6And7RedisDecidesAsMuchAsItCanUnderOverload(t *testing.T) { // not in parallel: it computes on all cores
	for name, server := range map[string]*slowServer{
		"slow": {perByte: 2 * time.Microsecond},
		"throttled": {perByte: 200 * time.Nanosecond, rests: func(at time.Duration) time.Duration {
			const period, rest = 10 * time.Millisecond, 9 * time.Millisecond
			return at + max(0, rest-at%period)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { testGoodput(t, server) })
		})
	}
}

func testGoodput(t *testing.T, server *slowServer) {
	redisServer := startStandin(t)
	defer redisServer.Close()
	const instances, deadline = 4, 50 * time.Millisecond
	var c crowd
	for range instances {
		l := server.open(t, redisServer, deadline)
		defer func() { _ = l.Close() }() // more units may be uncharged than Redis can take in time
		rule, err := l.Rule("r", limit.PerMinute(1_000_000), tiered.Use(limit.GCRA()))
		if err != nil {
			t.Fatal(err)
		}
		c.rules = append(c.rules, rule)
		defer func() {
			if n := l.Stats().Outages; n > 0 {
				t.Errorf("overload opened the breaker %d times", n)
			}
		}()
	}
	c.closed(t.Context(), 512, 200*time.Millisecond) // all at once, while Redis's speed is still unknown
	c.without = 0
	peak := c.closed(t.Context(), 512, 300*time.Millisecond)
	if c.without*100 > c.byRedis {
		t.Errorf("512 callers: %d by Redis, %d without", c.byRedis, c.without)
	}
	for _, offered := range []struct{ times, least float64 }{{2, 0.9}, {10, 0.75}} {
		c.without, c.atOnce = 0, 0
		rate := c.open(t.Context(), offered.times*peak, 500*time.Millisecond)
		t.Logf("%v times %.0f a second: %.2f of them by Redis, %.2f of the others at once", offered.times, peak, rate/peak, float64(c.atOnce)/float64(c.without))
		if rate < offered.least*peak {
			t.Errorf("%v times the peak: %.2f of the peak", offered.times, rate/peak)
		}
		if 2*c.atOnce < c.without {
			t.Errorf("%v times the peak: %d of %d without Redis were decided at once", offered.times, c.atOnce, c.without)
		}
	}
	if c.errors > 0 || c.slowest > deadline {
		t.Errorf("%d errors, and one waited for %v", c.errors, c.slowest)
	}
}
