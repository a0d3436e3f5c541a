package tiered

import (
	"testing"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
)

// A master that has lost its data knows nothing of its slots any more. Slots on other masters are not reported again,
// and calls for their keys do not wait for that.
func TestSlotsOnOtherMastersAreNotInDoubt(t *testing.T) {
	t.Parallel()
	cluster := redistest.SharedCluster(t)
	l := newLimiterOn(t, cluster.Client(t), redistest.Prefix())
	redistest.Eventually(t, "Redis decides", func() bool { return l.State() == Healthy })
	l.slots.closed.Store(true) // no keeper sends statements
	jobs := newRule(t, l, "jobs", limit.Concurrent(1))
	its, others := keysOf(t, cluster.Nodes()[0], l)
	mustAcquire(t, jobs, its[0], 1)
	mustAcquire(t, jobs, others[0], 1)
	l.doubtSlots(l.shardOf(keyOf(l, its[0])))
	statements := l.slots.table.Statements(l.now(), local.RenewNone, l.isReachable)
	if len(statements) != 1 || statements[0].Held.Key != its[0] {
		t.Errorf("%d statements are due, want one, about %q", len(statements), its[0])
	}
	for _, s := range statements {
		s.Failed(l.now())
	}
}
