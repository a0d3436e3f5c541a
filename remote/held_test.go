package remote

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// A connection is kept between two trips and given back afterwards. No connection is kept if the pool is small.
func TestConnectionIsHeldBetweenTrips(t *testing.T) {
	for _, test := range []struct{ pool, active, held int }{
		{spareConns, 0, 0}, {spareConns + 1, 0, 1},
		{10, spareConns, 0}, {10, spareConns + 1, 1}, {spareConns, 10, 0},
	} {
		client := redistest.Shared(t).Client(t, func(o *redis.Options) {
			o.PoolSize, o.MaxActiveConns, o.ContextTimeoutEnabled = test.pool, test.active, true
		})
		b, _ := newBatcher(t, client)
		b.script.HoldConnections()
		rule := newRule(t, limit.PerHour(1000), limit.GCRA())
		key := redistest.Prefix() + "k"
		away := func() int {
			stats := client.PoolStats()
			return int(stats.TotalConns) - int(stats.IdleConns)
		}
		for range 3 {
			mustDecide(t, b, Entry{Key: key, Rule: rule, Cost: 1})
			if n := away(); n != test.held {
				t.Errorf("of a pool of %d, and %d at most, %d connections are held, want %d", test.pool, test.active, n, test.held)
			}
		}
		b.script.ReturnIdleConnections()
		b.script.ReturnIdleConnections()
		if n := away(); n != 0 {
			t.Errorf("%d connections are held at rest", n)
		}
	}
}

// However many batchers share a client, enough of its connections are left for others.
func TestConnectionsAreLeftForOthers(t *testing.T) {
	const pool = 10
	client := redistest.Shared(t).Client(t, func(o *redis.Options) { o.PoolSize, o.ContextTimeoutEnabled = pool, true })
	rule := newRule(t, limit.PerHour(1000), limit.GCRA())
	for range 2 * pool {
		b, _ := newBatcher(t, client)
		b.script.HoldConnections()
		for range 2 {
			mustDecide(t, b, Entry{Key: redistest.Prefix() + "k", Rule: rule, Cost: 1})
		}
	}
	stats := client.PoolStats()
	if held := int(stats.TotalConns) - int(stats.IdleConns); held != pool-spareConns {
		t.Errorf("of %d connections %d are held, want %d", pool, held, pool-spareConns)
	}
}

// Others keep enough connections also if all batchers make their first trip at the same moment. Each then finds the
// pool unused, and none may wait until the others give back the connections that they hold.
func TestConnectionsAreLeftForOthersAtOnce(t *testing.T) {
	const pool = 10
	client := redistest.Shared(t).Client(t, func(o *redis.Options) { o.PoolSize, o.ContextTimeoutEnabled = pool, true })
	rule := newRule(t, limit.PerHour(1000), limit.GCRA())
	start := make(chan struct{})
	var all sync.WaitGroup
	for range 10 * pool {
		script := NewScript(client)
		script.Prepare(context.Background())
		script.HoldConnections()
		all.Go(func() {
			<-start
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if _, err := script.Run(ctx, []Entry{{Key: redistest.Prefix() + "k", Rule: rule, Cost: 1}}, 0); err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	all.Wait()
	stats := client.PoolStats()
	if held := int(stats.TotalConns) - int(stats.IdleConns); held > pool-spareConns {
		t.Errorf("of %d connections %d are held, want %d at most", pool, held, pool-spareConns)
	}
}

// Trips at the same time each hold a connection, up to a few.
func TestEachOfAFewTripsHoldsAConnection(t *testing.T) {
	client := redistest.Shared(t).Client(t, func(o *redis.Options) { o.PoolSize, o.ContextTimeoutEnabled = 20, true })
	n := &node{client: client, held: heldConns{client: client}}
	for trips := range heldAtOnce + 2 { // that use connections already
		if err := n.deliver(t.Context(), []redis.Cmder{redis.NewCmd(t.Context(), "ping")}); err != nil {
			t.Fatal(err)
		}
		stats := client.PoolStats()
		if held, want := int(stats.TotalConns)-int(stats.IdleConns), min(trips+1, heldAtOnce); held != want {
			t.Errorf("of %d trips, %d hold a connection, want %d", trips+1, held, want)
		}
		if trips < heldAtOnce {
			n.held.each[trips].mu.Lock()
		}
	}
	if n.held.returnAll(false) {
		t.Error("connections that are used have been given back")
	}
	for i := range n.held.each {
		n.held.each[i].mu.Unlock()
	}
	if n.held.returnAll(false); client.PoolStats().TotalConns != client.PoolStats().IdleConns {
		t.Error("connections are held at rest")
	}
}

// A connection is held for a short time only.
func TestConnectionIsHeldForAMoment(t *testing.T) {
	for _, test := range []struct {
		taken, used, now int64
		due              bool
	}{
		{0, 0, holdIdle.Microseconds(), false},
		{0, 0, holdIdle.Microseconds() + 1, true},
		{0, holdAtMost.Microseconds(), holdAtMost.Microseconds(), false},
		{0, holdAtMost.Microseconds(), holdAtMost.Microseconds() + 1, true},
	} {
		if h := (&heldConn{taken: test.taken, used: test.used}); h.isDue(test.now) != test.due {
			t.Errorf("%+v", test)
		}
	}
}

// If a server restarts during a pause, its connections are closed, and nothing is sent on the connection that was
// held.
func TestHeldConnectionOfAServerThatWasRestarted(t *testing.T) {
	server := redistest.Start(t)
	b, trips := newBatcher(t, server.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true }))
	b.script.HoldConnections()
	rule := newRule(t, limit.PerHour(1000), limit.GCRA())
	for range 3 {
		mustDecide(t, b, Entry{Key: "k", Rule: rule, Cost: 1})
		before := localTime()
		server.Restart()
		redistest.Eventually(t, "a pause", func() bool { return localTime()-before > holdIdle.Microseconds() })
		if _, err := b.Decide(context.Background(), Entry{Key: "k", Rule: rule, Cost: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if n := trips.failures(); n > 0 {
		t.Errorf("%d trips failed", n)
	}
}

// A trip that finds its node just before the node is forgotten holds no connection, because nobody would give it
// back.
func TestForgottenNodesHoldNoConnection(t *testing.T) {
	client := redistest.Shared(t).Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	n := &node{client: client, held: heldConns{client: client}}
	var ns nodes
	ns.known.Store(client, n)
	use := func() {
		if err := n.deliver(t.Context(), []redis.Cmder{redis.NewCmd(t.Context(), "ping")}); err != nil {
			t.Error(err)
		}
	}
	use()
	if n.held.each[0].conn == nil {
		t.Fatal("no connection is held")
	}
	n.held.each[0].mu.Lock() // a trip uses it
	ns.returnIdle()
	n.held.each[0].mu.Unlock()
	if _, known := ns.known.Load(client); !known {
		t.Error("forgotten while it was used")
	}
	ns.returnIdle()
	if _, known := ns.known.Load(client); known {
		t.Error("not forgotten")
	}
	use()
	if n.held.each[0].conn != nil {
		t.Error("a connection is held")
	}
}

// A client that has been used dials another connection, unless that would leave too few for others.
func TestAnotherConnectionIsDialed(t *testing.T) {
	for _, test := range []struct {
		pool, active int
		used         bool
		conns        uint32
	}{{10, 0, false, 0}, {10, 0, true, 2}, {spareConns, 0, true, 1}, {10, spareConns, true, 1}} {
		client := redistest.Shared(t).Client(t, func(o *redis.Options) { o.PoolSize, o.MaxActiveConns = test.pool, test.active })
		if test.used {
			if err := client.Ping(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		script := NewScript(client)
		for range 100 { // a busy machine may make Redis look far away
			if script.DialAnother(t.Context()); client.PoolStats().TotalConns == test.conns {
				break
			}
		}
		if stats := client.PoolStats(); stats.TotalConns != test.conns || stats.IdleConns != test.conns {
			t.Errorf("%+v: %d connections, %d of them unused", test, stats.TotalConns, stats.IdleConns)
		}
	}
}
