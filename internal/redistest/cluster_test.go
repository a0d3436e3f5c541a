package redistest

import (
	"strconv"
	"testing"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3)
	client := c.Client(t)
	for i := range 100 {
		key := "key" + strconv.Itoa(i)
		if err := client.Set(t.Context(), key, i, 0).Err(); err != nil {
			t.Fatalf("writing %s: %v", key, err)
		}
		if got, err := client.Get(t.Context(), key).Int(); got != i {
			t.Fatalf("%s is %d, %v; want %d", key, got, err, i)
		}
	}
	if len(c.Addrs()) != 3 {
		t.Errorf("%d addresses; want 3", len(c.Addrs()))
	}
	var total int64
	for _, node := range c.Nodes() {
		n, err := node.Client(t).DBSize(t.Context()).Result()
		if n == 0 || err != nil {
			t.Errorf("node %s has %d of 100 keys, %v; want about a third", node.Addr(), n, err)
		}
		total += n
	}
	if total != 100 {
		t.Errorf("the nodes have %d keys together; want 100", total)
	}
}
