//go:build unix

package faults

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/tiered"
)

// Law 3: slots move from node to node under traffic, and finally to a new node that has never seen the script.
// Meanwhile the nodes' script caches are emptied again and again. No caller notices, and every grant is charged
// exactly once.
func TestLaw3ReshardingUnderTraffic(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	masters := cluster.Nodes()
	l := newLimiter(t, cluster.Client(t), "tl", tiered.Deadline(patient))
	tr := startTraffic(t, l)
	tr.awaitRedis(t, 1000)

	slots := slotsOf(t, masters[0], "tl")
	cluster.MoveSlots(t, masters[0], masters[1], slots, func() {
		// Before Redis 7, the node that gets the slots says so, and not the one that loses them.
		redistest.Eventually(t, "batches have met slots whose keys are apart", func() bool {
			return errorsSaid(t, masters[0], "TRYAGAIN")+errorsSaid(t, masters[1], "TRYAGAIN") > 3
		})
	})
	tr.awaitRedis(t, 1000)

	fresh := cluster.AddNode(t)
	nodes := append(masters, fresh)
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		for range 20 {
			for _, node := range nodes {
				if err := node.Client(t).ScriptFlush(context.Background()).Err(); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	cluster.MoveSlots(t, masters[1], fresh, slots, func() { tr.awaitRedis(t, 1000) })
	<-flushed
	tr.awaitRedis(t, 1000)

	lost, granted := tr.balance(t, observe(t, cluster.Client(t), "tl"), false)
	said := make(map[string]int)
	for _, node := range nodes {
		for _, code := range []string{"ASK", "MOVED", "NOSCRIPT", "TRYAGAIN"} {
			said[code] += errorsSaid(t, node, code)
		}
	}
	t.Logf("%d slots moved twice; %d decisions by Redis, %d units granted; the nodes said %v", len(slots), tr.redis.Load(), granted, said)
	if lost != 0 || tr.fallback.Load() != 0 || len(tr.failed) != 0 {
		t.Errorf("%d units lost, %d decisions without Redis, errors %v; want none", lost, tr.fallback.Load(), tr.failed)
	}
	if len(slots) < 20 || said["ASK"] == 0 || said["MOVED"] == 0 || said["NOSCRIPT"] == 0 || said["TRYAGAIN"] == 0 {
		t.Error("the test shows little")
	}
}

// slotsOf returns the slots of a node that hold keys with a prefix.
func slotsOf(t *testing.T, node *redistest.Server, prefix string) (slots []int) {
	t.Helper()
	ctx, client := context.Background(), node.Client(t)
	keys, err := client.Keys(ctx, prefix+":*").Result()
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[int64]bool)
	for _, key := range keys {
		slot, err := client.ClusterKeySlot(ctx, key).Result()
		if err != nil {
			t.Fatal(err)
		}
		if !seen[slot] {
			seen[slot] = true
			slots = append(slots, int(slot))
		}
	}
	return slots
}

// errorsSaid returns how often a server has answered with an error of that code.
func errorsSaid(t *testing.T, node *redistest.Server, code string) int {
	t.Helper()
	info, err := node.Client(t).Info(context.Background(), "errorstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(info, "errorstat_"+code+":count=")
	if !found {
		return 0
	}
	count, _, _ := strings.Cut(rest, "\r\n")
	n, err := strconv.Atoi(count)
	if err != nil {
		t.Fatalf("errorstats of %s: %q", code, count)
	}
	return n
}
