//go:build unix

package faults

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// Law 3 in a failover under traffic: the master is killed and its replica takes over. Redis then decides about all
// keys again, and nothing is charged twice. Writes that the replica had not received are lost: docs/failover.md has
// the figures that this test logs.
func TestLaw3Failover(t *testing.T) {
	t.Parallel()
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		cluster := redistest.StartCluster(t, 3, "--cluster-node-timeout", "1000")
		f := failover{master: cluster.Nodes()[0], replica: cluster.AddReplicas(t)[0]}
		lost, _ := f.run(t, cluster.Client(t))
		if lost > 100 {
			t.Errorf("%d units lost although the replica was connected", lost)
		}
	})
	for _, c := range []struct {
		name string
		failover
	}{
		{"sentinel", failover{}},
		{"sentinel, replica cut off", failover{cut: true}},
		{"sentinel, replica cut off, writes need a replica", failover{cut: true, needsReplica: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sentinel := redistest.StartSentinel(t)
			f := c.failover
			f.master, f.replica = sentinel.Master(), sentinel.Replica()
			lost, sinceCut := f.run(t, sentinel.Client(t))
			// On a busy machine, the last of the keys may not have been charged again yet.
			if lost > max(100, sinceCut/10) {
				t.Errorf("%d units lost, want what was on its way when the master died; %d since the cut are known to who granted them", lost, sinceCut)
			}
		})
	}
}

type failover struct {
	master, replica *redistest.Server
	// If cut is set, the master goes on for a while without its replica before it dies.
	cut bool
	// If needsReplica is set, the master accepts writes only while it has a replica.
	needsReplica bool
}

// run kills the master under traffic. It returns how many units Redis has lost, and how many the master granted
// after its replica was cut off.
func (f failover) run(t *testing.T, client redis.UniversalClient) (lost, sinceCut int64) {
	const deadline = 200 * time.Millisecond // so long that Redis decides again on a busy machine, too
	ctx, admin, replica := context.Background(), f.master.Client(t), f.replica.Client(t)
	l := newLimiter(t, client, "tl", tiered.Deadline(deadline))
	tr := startTraffic(t, l)
	tr.awaitRedis(t, 3000)
	if f.needsReplica {
		if err := admin.ConfigSet(ctx, "min-replicas-to-write", "1").Err(); err != nil {
			t.Fatal(err)
		}
	}
	if f.cut {
		cutReplica(t, admin)
		sinceCut = -tr.granted()
		enough := tr.redis.Load() + 1000
		redistest.Eventually(t, "the master goes on, or refuses to", func() bool {
			return tr.redis.Load() > enough || f.needsReplica && tr.fallback.Load() > 100
		})
		if !f.needsReplica {
			awaitLostHeartbeats(t, admin, replica, "tl")
		}
		sinceCut += tr.granted()
	}
	f.master.Kill()
	killed := time.Now()
	awaitPromotion(t, replica)
	promoted := time.Since(killed)
	tr.awaitAll(t, l, killed.Add(promoted))
	decided := time.Since(killed)
	tr.end()
	redistest.Eventually(t, "nothing is to be charged afterwards", func() bool { return l.Stats().UnchargedUnits == 0 })

	losses := l.Stats().MemoryLosses
	lost, granted := tr.balance(t, observe(t, client, "tl"), losses > 0)
	t.Logf("the replica took over after %v, Redis decided about all keys after %v; of %d units granted %d are lost, %d were granted since the cut",
		promoted.Round(time.Millisecond), decided.Round(time.Millisecond), granted, lost, sinceCut)
	t.Logf("a loss of memory was noticed %d times; %d decisions by Redis, %d without", losses, tr.redis.Load(), tr.fallback.Load())
	if f.cut && !f.needsReplica && losses == 0 {
		t.Errorf("Redis has lost heartbeats that it had answered, and nobody noticed")
	}
	if len(tr.failed) > 0 {
		t.Errorf("callers got errors: %v", tr.failed)
	}
	if behind := decided - promoted; behind > 10*time.Second {
		t.Errorf("Redis decided about all keys only %v after the replica took over", behind)
	}
	return lost, sinceCut
}

// Law 11 in a failover to a replica that lacks the last grants: heartbeats show the loss, no second quota is
// granted, and the missing units are charged again.
func TestLaw11FailoverGrantsNoSecondQuota(t *testing.T) {
	t.Parallel()
	const quota, replicated, missing = 1000, 300, 500
	sentinel := redistest.StartSentinel(t)
	master, replica := sentinel.Master().Client(t), sentinel.Replica().Client(t)
	l := newLimiter(t, sentinel.Client(t), "tl", tiered.Deadline(patient))
	r := newRule(t, l, "r", limit.PerDay(quota), tiered.Use(limit.SlidingLog()))
	grant := func(units int64) {
		t.Helper()
		for _, key := range []string{"used again", "not used again"} {
			if d, err := r.AllowN(t.Context(), key, units); err != nil || !d.Allowed || d.Tier != limit.TierRedis {
				t.Fatalf("%q: %+v, %v", key, d, err)
			}
		}
	}
	grant(replicated)
	if err := master.Set(t.Context(), "copied", "", 0).Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "the replica has the grants", func() bool {
		return replica.Exists(t.Context(), "copied").Val() == 1
	})
	cutReplica(t, master)
	grant(missing)
	awaitLostHeartbeats(t, master, replica, "tl")

	sentinel.Master().Kill()
	awaitPromotion(t, replica)
	for range 2 { // when the limiter sends the second, it has acted on the first
		last := lastHeartbeat(t, replica, "tl")
		redistest.Eventually(t, "the new master gets a heartbeat", func() bool { return lastHeartbeat(t, replica, "tl") > last })
	}
	if n := l.Stats().MemoryLosses; n != 1 {
		t.Fatalf("%d losses of memory were noticed, want 1", n)
	}
	redistest.Eventually(t, "Redis decides again, but not alone", func() bool { return l.State() == tiered.Settling })
	d, err := r.AllowUpTo(t.Context(), "used again", quota)
	if want := int64(quota - replicated - missing); err != nil || d.Granted != want {
		t.Errorf("%+v, %v; want %d units granted", d, err, want)
	}
	observer := observe(t, replica, "tl")
	redistest.Eventually(t, "what is missing is charged again", func() bool { return observer.charged(t, r, "used again") == quota })
	if units := observer.charged(t, r, "not used again"); units != replicated {
		t.Errorf("%d units are charged for the key that was not used again, want %d: the test shows little", units, replicated)
	}
}

// cutReplica cuts a master off from its replica, which cannot reconnect.
func cutReplica(t *testing.T, master *redis.Client) {
	t.Helper()
	for _, command := range [][]any{
		{"ACL", "SETUSER", "default", "-psync", "-sync"},
		{"CLIENT", "KILL", "TYPE", "replica"},
	} {
		if err := master.Do(t.Context(), command...).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitLostHeartbeats waits until the master has answered two heartbeats that its replica lacks, one of which may
// have missed its deadline. Without such heartbeats, nobody could know that the replica lacks anything.
func awaitLostHeartbeats(t *testing.T, master, replica *redis.Client, prefix string) {
	t.Helper()
	// When the limiter sends a heartbeat, it has acted on the one before.
	redistest.Eventually(t, "the replica lacks heartbeats", func() bool {
		return lastHeartbeat(t, master, prefix) > lastHeartbeat(t, replica, prefix)+2
	})
}

// lastHeartbeat returns the number of the newest heartbeat that a server has from the only limiter with a prefix. There
// may be another key, of a limiter that newLimiter gave up after a few heartbeats.
func lastHeartbeat(t *testing.T, server *redis.Client, prefix string) (last int64) {
	t.Helper()
	keys, err := server.Keys(t.Context(), prefix+":*:heartbeats:*").Result()
	if err != nil || len(keys) == 0 {
		t.Fatalf("heartbeats are kept in %q, %v; want a key", keys, err)
	}
	for _, key := range keys {
		n, err := server.Get(t.Context(), key).Int64()
		if err != nil {
			t.Fatal(err)
		}
		last = max(last, n)
	}
	return last
}

func awaitPromotion(t *testing.T, replica *redis.Client) {
	t.Helper()
	redistest.Eventually(t, "the replica takes over", func() bool {
		info, err := replica.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "role:master")
	})
}
