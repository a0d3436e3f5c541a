package redistest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestClusterMovesSlots(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 2)
	client, ctx := c.Client(t), context.Background()
	var slots []int
	for i := range 100 {
		key := "key" + strconv.Itoa(i)
		if err := client.Set(ctx, key, i, 0).Err(); err != nil {
			t.Fatal(err)
		}
		slot, err := client.ClusterKeySlot(ctx, key).Result()
		if err != nil {
			t.Fatal(err)
		}
		if slot < slotCount/2 && !slices.Contains(slots, int(slot)) {
			slots = append(slots, int(slot))
		}
	}
	fresh := c.AddNode(t)
	halfway := false
	c.MoveSlots(t, c.Nodes()[0], fresh, slots, func() {
		halfway = true
		if n, err := fresh.Client(t).DBSize(ctx).Result(); n != int64(len(slots)) || err != nil {
			t.Errorf("halfway %d keys have moved, %v; want one of each of %d slots", n, err, len(slots))
		}
	})
	if !halfway {
		t.Error("halfway was not called")
	}
	moved, err := fresh.Client(t).DBSize(ctx).Result()
	left, leftErr := c.Nodes()[0].Client(t).DBSize(ctx).Result()
	if moved != int64(len(slots)) || left != 0 || err != nil || leftErr != nil {
		t.Errorf("%d keys moved, %d left, %v, %v; want all of %d moved", moved, left, err, leftErr, len(slots))
	}
	for i := range 100 {
		if got, err := client.Get(ctx, "key"+strconv.Itoa(i)).Int(); got != i || err != nil {
			t.Errorf("key%d is %d, %v", i, got, err)
		}
	}
}

func TestClusterReplicaTakesOver(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3, "--cluster-node-timeout", "1000")
	replicas := c.AddReplicas(t)
	ctx, master, replica := context.Background(), c.Nodes()[0], replicas[0]
	client := master.Client(t)
	key := "{06S}" // slot 0
	if err := client.Set(ctx, key, "before", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := client.Wait(ctx, 1, 5*time.Second).Result(); n != 1 {
		t.Fatalf("%d replicas have the key, %v; want 1", n, err)
	}
	master.Kill()
	err := poll(30*time.Second, func() error {
		info, err := replica.Client(t).Info(ctx, "replication").Result()
		if err == nil && !strings.Contains(info, "role:master") {
			err = fmt.Errorf("still a replica:\n%s", info)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := replica.Client(t).Get(ctx, key).Result(); got != "before" || err != nil {
		t.Errorf("the new master has %q, %v", got, err)
	}
}
