//go:build unix

package faults

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// network is one way in which a network fails.
type network struct {
	name   string
	faults []fault
	// If hangUp is set, the servers close all connections when the fault begins.
	hangUp bool
	// If late is set, no request sent after the fault begins reaches the servers before its deadline.
	late bool
	// If runs is set, some requests run although their callers do not get the answer.
	runs bool
}

func networks() []network {
	toxic := func(kind, stream string, attributes map[string]int) []fault {
		return []fault{{kind, stream, attributes}}
	}
	const up, down = "upstream", "downstream"
	return []network{
		{name: "replies are swallowed", faults: toxic("timeout", down, map[string]int{"timeout": 0}), runs: true},
		{name: "replies are cut short", faults: toxic("limit_data", down, map[string]int{"bytes": 20}), runs: true},
		// 500 bytes are enough for the handshake and for some replies.
		{name: "connections break after 500 bytes", faults: toxic("limit_data", down, map[string]int{"bytes": 500}), runs: true},
		{name: "replies are late", faults: toxic("latency", down, map[string]int{"latency": 200}), runs: true},
		{name: "replies are late or not", faults: toxic("latency", down, map[string]int{"latency": 45, "jitter": 40})},
		{name: "a reply resets the connection", faults: toxic("reset_peer", down, map[string]int{"timeout": 0}), runs: true},
		{name: "requests are swallowed", faults: toxic("timeout", up, map[string]int{"timeout": 0}), late: true},
		{name: "requests are late", faults: toxic("latency", up, map[string]int{"latency": 200}), late: true},
		{name: "1 kB a second", faults: toxic("bandwidth", up, map[string]int{"rate": 1}), late: true},
		{
			name: "nobody hears that the server has hung up", hangUp: true,
			faults: append(toxic("slow_close", up, map[string]int{"delay": 2000}), fault{"slow_close", down, map[string]int{"delay": 2000}}),
		},
	}
}

// Laws 3, 4 and 7 hold whatever a network does to requests and replies. A decision is charged once if Redis made
// it, at most once if its answer was lost, and not at all if it was late. No call takes longer than its deadline.
// Redis decides again when the network works again. The test makes calls one after another and many at once, on one
// node and on a Cluster, through a client that is set to retry.
func TestLaws3And4And7FaultyNetworks(t *testing.T) {
	t.Parallel()
	t.Run("one node", func(t *testing.T) {
		t.Parallel()
		shared := redistest.Start(t)
		for _, n := range networks() {
			t.Run(n.name, func(t *testing.T) {
				t.Parallel()
				server := shared
				if n.hangUp { // this fault affects other clients, too
					server = redistest.Start(t)
				}
				p := startProxies(t, server.Addr())
				through := server.Client(t, func(o *redis.Options) { o.Dialer, o.MaxRetries = p.dial, 3 })
				n.check(t, p, through, server.Client(t), []*redistest.Server{server})
			})
		}
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		shared := redistest.StartCluster(t, 3)
		for _, n := range networks() {
			t.Run(n.name, func(t *testing.T) {
				t.Parallel()
				cluster := shared
				if n.hangUp {
					cluster = redistest.StartCluster(t, 3)
				}
				p := startProxies(t, cluster.Addrs()...)
				through := cluster.Client(t, func(o *redis.ClusterOptions) { o.Dialer, o.MaxRetries, o.MaxRedirects = p.dial, 3, 3 })
				n.check(t, p, through, cluster.Client(t), cluster.Nodes())
			})
		}
	})
}

// check makes calls through the proxies, each for a key of its own, while the network becomes faulty. It then looks
// up directly how much each call was charged.
func (n network) check(t *testing.T, p *proxies, through, direct redis.UniversalClient, servers []*redistest.Server) {
	prefix := redistest.Prefix()
	l := newLimiter(t, through, prefix)
	r := newRule(t, l, "r", limit.PerDay(10))
	// This rule shows whether Redis decides, and grants nothing while it does not.
	again := newRule(t, l, "again", limit.PerDay(10_000), tiered.OnOutage(tiered.Deny))
	observer := observe(t, direct, prefix)
	c := &calls{rule: r, outcomes: make(map[string]outcome)}
	fail := func() {
		for _, f := range n.faults {
			p.begin(f)
		}
		if n.hangUp {
			for _, server := range servers {
				if err := server.Client(t).Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal").Err(); err != nil {
					t.Error(err)
				}
			}
		}
		c.faulty.Store(true)
	}
	mend := func() {
		p.end()
		redistest.Eventually(t, "Redis decides again", func() bool {
			d, err := again.Allow(context.Background(), "k")
			return err == nil && d.Tier == limit.TierRedis
		})
		// Until Redis has been told of all units granted without it, it does not decide alone.
		redistest.Eventually(t, "all is settled", func() bool { return l.State() == tiered.Healthy })
		c.faulty.Store(false)
	}

	fail()
	for i := range 3 { // fewer failures than open the breaker
		c.ask(t, fmt.Sprint("alone", i))
	}
	mend()

	var crowd sync.WaitGroup
	for caller := range 64 {
		crowd.Go(func() {
			for i := range 20 {
				c.ask(t, fmt.Sprint("crowd", caller, "-", i))
			}
		})
	}
	// At that point trips are full and under way.
	redistest.Eventually(t, "200 calls decided", func() bool { return c.decided() > 200 })
	fail()
	crowd.Wait()
	mend()

	unanswered, ran, late := 0, int64(0), int64(0)
	for key, o := range c.outcomes {
		units := observer.charged(t, r, key)
		switch {
		case o.tier == limit.TierRedis && units != 1:
			t.Errorf("%s: decided by Redis and charged %d units, want 1", key, units)
		case units > 1:
			t.Errorf("%s: decided without Redis, and charged %d times", key, units)
		}
		if o.tier.Degraded() {
			unanswered++
			ran += units
			if o.faulty {
				late += units
			}
		}
	}
	// Calls that were not sent were charged afterwards; the others have run.
	afterwards := int64(l.Stats().ChargedBackUnits)
	t.Logf("of %d calls %d were not answered by Redis; %d of these ran, %d were charged afterwards",
		len(c.outcomes), unanswered, ran-afterwards, afterwards)
	if n.late && late > afterwards {
		t.Errorf("%d units charged although they came late", late-afterwards)
	}
	if unanswered == 0 || n.late && afterwards == 0 || n.runs && ran == afterwards {
		t.Error("the test shows little")
	}
}

// calls has the outcome of each call, by its key.
type calls struct {
	rule   *tiered.Rule
	faulty atomic.Bool // the network is faulty

	mu       sync.Mutex // guards outcomes
	outcomes map[string]outcome
}

type outcome struct {
	tier   limit.Tier
	faulty bool // the network was faulty when the call began
}

func (c *calls) decided() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.outcomes)
}

// ask makes a call that must be allowed, in time.
func (c *calls) ask(t *testing.T, key string) outcome {
	o := outcome{faulty: c.faulty.Load()}
	d, took, err := timed(deadline, func() (limit.Decision, error) { return c.rule.Allow(context.Background(), key) })
	if err != nil {
		t.Errorf("%s: %v", key, err)
	}
	if took > deadline+slack {
		t.Errorf("%s took %v, the deadline is %v", key, took, deadline)
	}
	o.tier = d.Tier
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outcomes[key] = o
	return o
}

const (
	deadline = 50 * time.Millisecond // the limiter's default
	slack    = loadSlack             // so many callers at once wake up late; a client's own time-outs are 3 s and more
)

// timed returns how long a call took that should keep a deadline. A bare timer with the deadline's length runs
// beside it. If the timer is late, the machine has stood still for that long, and timed subtracts the lateness from
// the call's time.
func timed[T any](deadline time.Duration, call func() (T, error)) (result T, took time.Duration, err error) {
	started := time.Now()
	late := make(chan time.Duration, 1)
	control := time.AfterFunc(deadline, func() { late <- time.Since(started) - deadline })
	result, err = call()
	if took = time.Since(started); took > deadline+slack {
		took -= <-late
	}
	control.Stop()
	return result, took, err
}
