package tiered

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// blocks is how long a call takes if it waits for something that blocks. A call that does not wait ends long
// before tooLong, even on a busy machine.
const blocks, tooLong = 20 * time.Second, 10 * time.Second

// wrapped is a client of a user-defined type that is not a pointer.
type wrapped struct{ redis.UniversalClient }

// A client of an unknown type works. The limiter treats it like a Cluster's client, which it may be.
func TestClientOfAnotherType(t *testing.T) {
	l := newLimiterOn(t, wrapped{redistest.Shared(t).Client(t)}, redistest.Prefix())
	r := newRule(t, l, "r", limit.PerHour(2))
	for i := range 3 {
		if d := mustAllow(t, r, "k", 1); d.Allowed != (i < 2) || d.Degraded() {
			t.Errorf("request %d: %+v", i, d)
		}
	}
}

// Law 4: a client that is not configured to respect deadlines waits for five seconds by itself. Callers of the
// limiter do not wait that long, although they make their own trips. The client that was passed to New stays
// unchanged.
func TestLaw4StockClientKeepsTheDeadline(t *testing.T) {
	const tooLong = 2 * time.Second
	server := redistest.Start(t)
	var hang atomic.Bool
	dialed := make(chan struct{})
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if hang.Load() {
			<-dialed
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}})
	t.Cleanup(func() { _ = client.Close() })
	before := *client.Options()
	l := newLimiterOn(t, client, redistest.Prefix(), Deadline(50*time.Millisecond))
	r := newRule(t, l, "r", limit.PerHour(1000))
	if !l.batching.Inline {
		t.Error("callers do not make their own trips")
	}
	if after := *client.Options(); after.ContextTimeoutEnabled || after.ReadTimeout != before.ReadTimeout || after.WriteTimeout != before.WriteTimeout {
		t.Errorf("the client that was handed in has changed: %+v", after)
	}
	if own := l.client.(*redis.Client).Options(); own.ReadTimeout != before.ReadTimeout || own.WriteTimeout != before.WriteTimeout {
		t.Errorf("time-outs are %v and %v, the client had %v and %v", own.ReadTimeout, own.WriteTimeout, before.ReadTimeout, before.WriteTimeout)
	}
	redistest.Eventually(t, "Redis decides", func() bool { return mustAllow(t, r, "k", 1).Tier == limit.TierRedis })

	fallsBack := func(what string) {
		t.Helper()
		started := time.Now()
		d := mustAllow(t, r, "k", 1)
		if took := time.Since(started); took > tooLong || !d.Degraded() {
			t.Errorf("%s: tier %v after %v", what, d.Tier, took)
		}
	}
	server.Pause()
	defer func() { // Close sends a last message to Redis
		server.Resume()
		hang.Store(false)
		close(dialed)
	}()
	fallsBack("a silent server") // the limiter then closes the connection
	hang.Store(true)
	fallsBack("a dial without an answer")
}

// Law 7: time-outs of -2 make go-redis set no deadlines on its connections, for connections that do not support
// them, such as those of an SSH tunnel. Callers then make no trips of their own, because such a trip would last
// until Redis answers.
func TestLaw7ClientsThatSetNoDeadlines(t *testing.T) {
	t.Parallel()
	single, cluster := redistest.Start(t), redistest.StartCluster(t, 1)
	options := &redis.Options{Addr: single.Addr(), ReadTimeout: -2, WriteTimeout: -2, ContextTimeoutEnabled: true}
	clusterOptions := &redis.ClusterOptions{Addrs: []string{cluster.Nodes()[0].Addr()}, ReadTimeout: -2, WriteTimeout: -2}
	for _, c := range []struct {
		name   string
		server *redistest.Server
		client redis.UniversalClient
	}{
		{"one node", single, redis.NewClient(options)},
		{"a Cluster", cluster.Nodes()[0], redis.NewClusterClient(clusterOptions)},
	} {
		t.Cleanup(func() { _ = c.client.Close() })
		l := newLimiterOn(t, c.client, redistest.Prefix(), Deadline(50*time.Millisecond))
		r := newRule(t, l, "r", limit.PerHour(1_000_000))
		redistest.Eventually(t, c.name+": Redis decides", func() bool { return mustAllow(t, r, "k", 1).Tier == limit.TierRedis })

		c.server.Pause()
		var over atomic.Bool
		resume := time.AfterFunc(blocks, func() { over.Store(true); c.server.Resume() }) // ends the calls that wait for Redis
		for l.State() != Outage && !over.Load() {
			began := time.Now()
			d := mustAllow(t, r, "k", 1)
			if took := time.Since(began); took > tooLong || !d.Degraded() {
				t.Errorf("%s, Redis is silent: tier %v after %v", c.name, d.Tier, took)
			}
		}
		if over.Load() {
			t.Errorf("%s: Redis does not count as lost after %v of silence", c.name, blocks)
		}
		if resume.Stop() {
			c.server.Resume()
		}
		redistest.Eventually(t, c.name+": Redis decides again", func() bool { return l.State() != Outage && mustAllow(t, r, "k", 1).Tier == limit.TierRedis })
	}
}

// Law 7: go-redis may run functions of the program on each new connection, such as one that fetches a password,
// and they may block for longer than the deadline of a decision. No caller waits for them.
func TestLaw7FunctionsOnConnectionsThatBlock(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(o *redis.Options, block func()){
		"CredentialsProvider": func(o *redis.Options, block func()) {
			o.CredentialsProvider = func() (string, string) { block(); return "", "" }
		},
		"OnConnect": func(o *redis.Options, block func()) {
			o.OnConnect = func(context.Context, *redis.Conn) error { block(); return nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			var blocked atomic.Bool
			release := make(chan struct{})
			l := newLimiterOn(t, server.Client(t, func(o *redis.Options) {
				set(o, func() {
					if blocked.Load() {
						select {
						case <-release:
						case <-time.After(blocks):
						}
					}
				})
			}), redistest.Prefix(), Deadline(50*time.Millisecond))
			r := newRule(t, l, "r", limit.PerHour(1_000_000))
			redistest.Eventually(t, "Redis decides", func() bool { return mustAllow(t, r, "k", 1).Tier == limit.TierRedis })
			blocked.Store(true)
			if err := server.Client(t).Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal").Err(); err != nil {
				t.Fatal(err)
			}
			for started := time.Now(); l.State() != Outage && time.Since(started) < blocks; {
				began := time.Now()
				mustAllow(t, r, "k", 1)
				if took := time.Since(began); took > tooLong {
					t.Errorf("a decision took %v", took)
				}
			}
			if l.State() != Outage {
				t.Error("Redis does not count as lost, although there is no connection to it")
			}
			blocked.Store(false)
			close(release)
			redistest.Eventually(t, "Redis decides again", func() bool { return l.State() != Outage && mustAllow(t, r, "k", 1).Tier == limit.TierRedis })
		})
	}
}

// watching is a hook that counts dials, commands and pipelines.
type watching struct{ dials, commands, pipelines atomic.Int64 }

func (w *watching) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		w.dials.Add(1)
		return next(ctx, network, addr)
	}
}

func (w *watching) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		w.commands.Add(1)
		return next(ctx, cmd)
	}
}

func (w *watching) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		w.pipelines.Add(1)
		return next(ctx, cmds)
	}
}

// The hooks of a client also run for the limiter's commands, once for each command, whether or not the limiter
// uses a copy of the client.
func TestHooksOfTheClientRun(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		client := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr(), ContextTimeoutEnabled: keeps})
		t.Cleanup(func() { _ = client.Close() })
		var first, second watching
		client.AddHook(&first)
		client.AddHook(&second)
		l := newLimiterOn(t, client, redistest.Prefix())
		if l.client == client != keeps {
			t.Fatalf("ContextTimeoutEnabled is %v: the limiter uses a copy: %v", keeps, l.client != client)
		}
		if first.dials.Load() == 0 || first.pipelines.Load() == 0 {
			t.Errorf("ContextTimeoutEnabled is %v: %d dials and %d greetings were seen", keeps, first.dials.Load(), first.pipelines.Load())
		}
		r := newRule(t, l, "r", limit.PerHour(1000))
		before, trips := first.commands.Load(), l.Stats().Trips.Seconds.Count()
		for range 100 {
			mustAllow(t, r, "k", 1)
		}
		seen, trips := first.commands.Load()-before, l.Stats().Trips.Seconds.Count()-trips
		const heartbeats = 10
		if seen < int64(trips) || seen > int64(trips)+heartbeats || trips < 100 {
			t.Errorf("ContextTimeoutEnabled is %v: %d commands were seen in %d trips", keeps, seen, trips)
		}
		if a, b := first.commands.Load(), second.commands.Load(); max(a, b)-min(a, b) > heartbeats {
			t.Errorf("ContextTimeoutEnabled is %v: one hook saw %d commands, the other %d", keeps, a, b)
		}
	}
}
