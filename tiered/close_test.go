package tiered

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Close during traffic takes the deadline and a second at most if Redis hangs, whatever the client
// does by itself; and those who wait for a decision meanwhile have it in time (law 4).
func TestLaw4CloseOfAHungRedisIsBounded(t *testing.T) {
	const tooLong = 3 * time.Second // a client's own time-outs are 5 s and more
	server, cluster := redistest.Start(t), redistest.StartCluster(t, 2)
	node := redis.NewClient(&redis.Options{Addr: server.Addr()})
	nodes := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	for _, client := range []redis.UniversalClient{node, nodes} {
		l, err := New(client, Prefix(redistest.Prefix()), Deadline(50*time.Millisecond), LedgerKeys(1000), RememberDenials(1000))
		if err != nil {
			t.Fatal(err)
		}
		r := newRule(t, l, "r", limit.PerHour(1_000_000))
		var callers sync.WaitGroup
		for range 16 {
			callers.Go(func() {
				for {
					started := time.Now()
					_, err := r.Allow(context.Background(), "k")
					if took := time.Since(started); took > tooLong {
						t.Errorf("%T: a decision took %v", client, took)
					}
					if errors.Is(err, limit.ErrClosed) {
						return
					} else if err != nil {
						t.Error(err)
					}
				}
			})
		}
		redistest.Eventually(t, "Redis decides", func() bool { return mustAllow(t, r, "k", 1).Tier == limit.TierRedis })
		for _, s := range append(cluster.Nodes(), server) {
			s.Pause()
		}
		redistest.Eventually(t, "Redis is missed", func() bool { return mustAllow(t, r, "k", 1).Degraded() })
		started := time.Now()
		_ = l.Close() // it says that the fleet could not be told
		if took := time.Since(started); took > tooLong {
			t.Errorf("%T: Close took %v", client, took)
		}
		callers.Wait()
		for _, s := range append(cluster.Nodes(), server) {
			s.Resume()
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}
}
