package faults

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/tiered"
)

// Law 3 in a failover under traffic: the master is killed and its replica takes over.
// Redis then decides about all keys again, and nothing is charged twice. What a replica
// had no copy of is lost: docs/failover.md has the figures that this logs.
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
			// Each key is charged again at its next use after a loss was noticed, which on a busy machine
			// some have yet to come to.
			if lost > max(100, sinceCut/4) {
				t.Errorf("%d units lost, want what was on its way when the master died; %d since the cut are known to who granted them", lost, sinceCut)
			}
		})
	}
}

type failover struct {
	master, replica *redistest.Server
	// cut: before it dies, the master goes on for a while without its replica.
	cut bool
	// needsReplica: the master accepts writes only while it has a replica.
	needsReplica bool
}

// run kills the master under traffic and returns how many units Redis has lost, and how
// many the master granted after its replica was cut off.
func (f failover) run(t *testing.T, client redis.UniversalClient) (lost, sinceCut int64) {
	ctx, admin := context.Background(), f.master.Client(t)
	l := newLimiter(t, client, "tl")
	tr := startTraffic(t, l)
	tr.awaitRedis(t, 3000)
	if f.needsReplica {
		if err := admin.ConfigSet(ctx, "min-replicas-to-write", "1").Err(); err != nil {
			t.Fatal(err)
		}
	}
	if f.cut {
		for _, command := range [][]any{
			{"ACL", "SETUSER", "default", "-psync", "-sync"}, // it cannot come back
			{"CLIENT", "KILL", "TYPE", "replica"},
		} {
			if err := admin.Do(ctx, command...).Err(); err != nil {
				t.Fatal(err)
			}
		}
		sinceCut = -tr.granted()
		enough := tr.redis.Load() + 1000
		redistest.Eventually(t, "the master goes on, or refuses to", func() bool {
			return tr.redis.Load() > enough || f.needsReplica && tr.fallback.Load() > 100
		})
		sinceCut += tr.granted()
	}
	f.master.Kill()
	killed := time.Now()
	replica := f.replica.Client(t)
	redistest.Eventually(t, "the replica takes over", func() bool {
		info, err := replica.Info(ctx, "replication").Result()
		return err == nil && strings.Contains(info, "role:master")
	})
	promoted := time.Since(killed)
	tr.awaitAll(t, killed.Add(promoted))
	decided := time.Since(killed)

	losses := l.Stats().MemoryLosses
	lost, granted := tr.balance(t, newLimiter(t, client, "tl", tiered.Deadline(patient)), losses > 0)
	t.Logf("the replica took over after %v, Redis decided about all keys after %v; of %d units granted %d are lost, %d were granted since the cut",
		promoted.Round(time.Millisecond), decided.Round(time.Millisecond), granted, lost, sinceCut)
	t.Logf("a loss of memory was noticed %d times; %d decisions by Redis, %d without", losses, tr.redis.Load(), tr.fallback.Load())
	if len(tr.failed) > 0 {
		t.Errorf("callers got errors: %v", tr.failed)
	}
	if behind := decided - promoted; behind > 10*time.Second {
		t.Errorf("Redis decided about all keys only %v after the replica took over", behind)
	}
	return lost, sinceCut
}
