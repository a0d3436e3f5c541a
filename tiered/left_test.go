package tiered

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// A node that has left the Cluster (CLUSTER RESET) says that no master has any slot. go-redis may ask it which master
// has which slot, for a minute or for as long as it is among the client's addresses. The masters decide nevertheless.
func TestANodeThatHasLeftTheCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2)
	left := redistest.Start(t, "--cluster-enabled", "yes")
	client := cluster.Client(t, func(o *redis.ClusterOptions) { o.Addrs = append(o.Addrs, left.Addr()) })
	l := newLimiterOn(t, client, "tl", Deadline(2*time.Second), RememberDenials(0))
	r := newRule(t, l, "r", limit.PerDay(1_000_000), Use(limit.SlidingCounter(limit.DefaultBuckets, limit.Strict)))
	keys, others := keysOf(t, cluster.Nodes()[0], l)
	keys = slices.Concat(keys, others)
	traffic := startAsking(r, keys)
	for range 20 {
		time.Sleep(time.Second) // more often than by itself, and less often than where commands fail
		client.ReloadState(t.Context())
	}
	traffic.end()
	for _, key := range keys {
		a := traffic.seen[key]
		if a.err != nil || a.tiers[limit.TierRedis] < 4*a.tiers[limit.TierFallback] {
			t.Errorf("%s: decisions by tier %v, error %v; want nearly all by Redis", key, a.tiers, a.err)
		}
	}
	if outages := l.Stats().Outages; outages > 0 {
		t.Errorf("masters counted as lost %d times", outages)
	}
}
