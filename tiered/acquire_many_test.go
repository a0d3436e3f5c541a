package tiered

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
)

// Law 7: in an outage, a process that holds many keys acquires and releases further slots without a look at all of
// them each time.
func TestLaw7ManySlotsDoNotDelayFurtherOnesInAnOutage(t *testing.T) { // not in parallel: it measures time
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), redistest.Prefix(), Deadline(200*time.Millisecond))
	r := newRule(t, l, "jobs", limit.Concurrent(4))
	server.Kill()
	redistest.Eventually(t, "the outage is noticed", func() bool {
		_, _, _ = r.Acquire(context.Background(), "x", 1)
		return l.State() == Outage
	})
	const keys, further = 20_000, 100
	for i := range keys {
		mustAcquire(t, r, fmt.Sprint(i), 1)
	}
	look := func() time.Duration {
		began := time.Now()
		l.slots.table.Next(func(local.HeldKey) bool { return false })
		return time.Since(began)
	}
	one := min(look(), look(), look())
	var took []time.Duration
	for range further {
		began := time.Now()
		mustAcquire(t, r, "another", 1).Release()
		took = append(took, time.Since(began))
		time.Sleep(one / 4)
	}
	slices.Sort(took)
	median := took[len(took)/2]
	t.Logf("half of the slots took %v or less, and a look at all %d keys takes %v", median, keys, one)
	if median > one/4 {
		t.Error("most slots waited for a look at all keys")
	}
}
