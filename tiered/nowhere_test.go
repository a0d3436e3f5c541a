package tiered

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Law 11: if no master of a Cluster has some slots, only keys of these slots are decided without Redis, and charged
// when a master has them again. go-redis sends commands for such slots to random nodes.
func TestLaw11SlotsThatNoMasterHas(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, "--cluster-require-full-coverage", "no")
	client := cluster.Client(t)
	l := newLimiterOn(t, client, "tl", Deadline(2*time.Second), RememberDenials(0))
	its, others := keysOf(t, cluster.Nodes()[1], l)
	slot := int(client.ClusterKeySlot(t.Context(), "{"+its[0]+"}").Val())
	checkSlotsNowhere(t, l, its[:1], slices.Concat(its[1:], others), func() {
		for _, node := range cluster.Nodes() {
			if err := node.Client(t).ClusterDelSlots(context.Background(), slot).Err(); err != nil {
				t.Error(err)
			}
		}
	}, func() error {
		return cluster.Nodes()[1].Client(t).ClusterAddSlots(context.Background(), slot).Err()
	}, Healthy)
}

// Law 11: the same holds for the slots of a master that is lost and that the others forget.
func TestLaw11SlotsOfAMasterThatIsForgotten(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, "--cluster-require-full-coverage", "no", "--cluster-node-timeout", "2000")
	l := newLimiterOn(t, cluster.Client(t), "tl", Deadline(2*time.Second), RememberDenials(0))
	master := cluster.Nodes()[1]
	lost, kept := keysOf(t, master, l)
	id, err := master.Client(t).ClusterMyID(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	checkSlotsNowhere(t, l, lost, kept, func() {
		master.Kill()
		for _, other := range []*redistest.Server{cluster.Nodes()[0], cluster.Nodes()[2]} {
			if err := other.Client(t).ClusterForget(context.Background(), id).Err(); err != nil {
				t.Error(err)
			}
		}
	}, func() error {
		return cluster.Nodes()[0].Client(t).ClusterAddSlotsRange(context.Background(), 16384/3, 2*16384/3-1).Err()
	}, Settling) // what the master knew is lost
}

// checkSlotsNowhere asks about keys whose slots have no master between begin and end, and about others that are kept.
// after is the limiter's state afterwards.
func checkSlotsNowhere(t *testing.T, l *Limiter, nowhere, kept []string, begin func(), end func() error, after State) {
	t.Helper()
	r := newRule(t, l, "r", limit.PerDay(1_000_000), Use(limit.SlidingCounter(limit.DefaultBuckets, limit.Strict)))
	traffic := startAsking(r, slices.Concat(nowhere, kept))
	traffic.awaitTier(t, nowhere, limit.TierRedis)
	traffic.awaitTier(t, kept, limit.TierRedis)
	begin()
	traffic.awaitTier(t, nowhere, limit.TierFallback)
	redistest.Eventually(t, "the slots count as lost", func() bool { return l.State() == Outage })
	time.Sleep(8 * time.Second) // the limiter looks at the slots every 5 s
	if err := end(); err != nil {
		t.Error(err)
	}
	traffic.awaitTier(t, nowhere, limit.TierRedis)
	traffic.end()
	redistest.Eventually(t, "it is back", func() bool { return l.State() == after && l.Stats().UnchargedUnits == 0 })
	for _, key := range kept {
		a := traffic.seen[key]
		if len(a.tiers) != 1 || a.tiers[limit.TierRedis] == 0 || a.err != nil {
			t.Errorf("%s, whose slot has a master: decisions by tier %v, error %v; want Redis's only", key, a.tiers, a.err)
		}
		if charged := unitsInRedis(t, r, key); charged != a.granted {
			t.Errorf("%s, whose slot has a master: %d units charged, %d granted", key, charged, a.granted)
		}
	}
	for _, key := range nowhere {
		if a := traffic.seen[key]; a.err != nil || a.tiers[limit.TierFallback] == 0 {
			t.Errorf("%s: decisions by tier %v, error %v", key, a.tiers, a.err)
		}
	}
}
