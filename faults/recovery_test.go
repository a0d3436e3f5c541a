//go:build unix

package faults

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// callers are goroutines that call again and again, each for a key of its own.
type callers struct {
	stop    atomic.Bool
	running sync.WaitGroup
	late    atomic.Int64
	failed  atomic.Value // error
}

// startCallers starts callers of a rule whose limiter has the given deadline.
func startCallers(rule *tiered.Rule, deadline time.Duration, count int, pause time.Duration) *callers {
	c := &callers{}
	for i := range count {
		c.running.Go(func() {
			for !c.stop.Load() {
				_, took, err := timed(deadline, func() (limit.Decision, error) { return rule.Allow(context.Background(), fmt.Sprint(i)) })
				if took > deadline+slack {
					c.late.Add(1)
				}
				if err != nil {
					c.failed.Store(err)
				}
				time.Sleep(pause)
			}
		})
	}
	return c
}

func (c *callers) end(t *testing.T) {
	t.Helper()
	c.stop.Store(true)
	c.running.Wait()
	if n := c.late.Load(); n > 0 {
		t.Errorf("%d calls took longer than the deadline", n)
	}
	if err := c.failed.Load(); err != nil {
		t.Error(err)
	}
}

// Law 7: with a Redis that is too slow for nearly half of the calls, decisions do not alternate quickly between
// Redis and the outage policy.
func TestLaw7SlowRedisDoesNotFlap(t *testing.T) {
	t.Parallel()
	const deadline = 150 * time.Millisecond // so long that Redis decides again on a busy machine, too
	server := redistest.Start(t)
	p := startProxies(t, server.Addr())
	var outages atomic.Int64
	l := newLimiter(t, server.Client(t, func(o *redis.Options) { o.Dialer, o.ContextTimeoutEnabled = p.dial, true }), redistest.Prefix(),
		tiered.Deadline(deadline), tiered.OnStateChange(func(s tiered.State) {
			if s == tiered.Outage {
				outages.Add(1)
			}
		}))
	c := startCallers(newRule(t, l, "r", limit.PerDay(1_000_000)), deadline, 8, time.Millisecond)
	redistest.Eventually(t, "Redis decides", func() bool { return l.State() == tiered.Healthy })
	p.begin(fault{"latency", "downstream", map[string]int{"latency": 135, "jitter": 120}}) // 15 to 255 ms
	redistest.Eventually(t, "Redis counts as lost", func() bool { return outages.Load() > 0 })
	before := outages.Load()
	time.Sleep(16 * time.Second) // further outages during this time are counted
	n := outages.Load() - before
	p.end()
	redistest.Eventually(t, "Redis decides again", func() bool { return l.State() == tiered.Healthy })
	c.end(t)
	t.Logf("Redis counted as lost once, and %d times more in 16 s", n)
	if n > 5 {
		t.Errorf("Redis counted as lost %d times more in 16 s, want up to 5", n)
	}
}

// Law 7: when Redis comes back, the many callers do not all connect to it, although the client's pool would let
// them. They call no more often than a slow machine can answer without Redis, even under the race detector.
// Otherwise, the goroutines that do not fit into a core's run queue would wait in the global one. The scheduler
// looks there seldom while there is other work, and calls that were decided in time would return a quarter of a
// second later.
func TestLaw7RecoveryIsNoStampede(t *testing.T) {
	const deadline = 200 * time.Millisecond // Redis counts as back only if it answers in time, on a busy machine, too
	server := redistest.Start(t)
	control := server.Client(t)
	l := newLimiter(t, server.Client(t, func(o *redis.Options) { o.PoolSize, o.ContextTimeoutEnabled = 1000, true }), redistest.Prefix(),
		tiered.Deadline(deadline))
	c := startCallers(newRule(t, l, "r", limit.PerDay(1_000_000)), deadline, 500, 10*time.Millisecond)
	redistest.Eventually(t, "Redis decides", func() bool { return l.State() == tiered.Healthy })
	before, began := connectionsMade(t, control), time.Now()
	for range 3 {
		server.Pause()
		redistest.Eventually(t, "Redis counts as lost", l.Degraded)
		server.Resume()
		redistest.Eventually(t, "Redis decides again", func() bool { return l.State() == tiered.Healthy })
	}
	made := connectionsMade(t, control) - before
	c.end(t)
	t.Logf("%d connections were made", made)
	// Each recovery gives up the connections that were in use, at most eight. Probes make some more, four a second
	// for as long as the outage lasts.
	if made > 3*30+4*int(time.Since(began).Seconds()) {
		t.Errorf("%d connections were made for three recoveries", made)
	}
}

// connectionsMade returns how many connections a server has accepted.
func connectionsMade(t *testing.T, client redis.UniversalClient) (n int) {
	t.Helper()
	info, err := client.InfoMap(t.Context(), "stats").Result()
	if err == nil {
		n, err = strconv.Atoi(info["Stats"]["total_connections_received"])
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}
