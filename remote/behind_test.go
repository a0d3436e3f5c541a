package remote

import (
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// With each version of the protocol, MastersBehind finds out whether a server is a node of a Cluster.
func TestMastersBehind(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2)
	for _, protocol := range []int{2, 3} {
		for addr, want := range map[string]int{redistest.Shared(t).Addr(): 0, cluster.Addrs()[0]: 2, cluster.Addrs()[1]: 2} {
			client := redis.NewClient(&redis.Options{Addr: addr, Protocol: protocol})
			t.Cleanup(func() { _ = client.Close() })
			if n, err := MastersBehind(t.Context(), client); err != nil || n != want {
				t.Errorf("protocol %d: %d masters, %v; want %d", protocol, n, err, want)
			}
		}
	}
	node := cluster.Nodes()[0].Client(t)
	var elsewhere, here int
	for i := range 50 {
		switch err := node.Set(t.Context(), fmt.Sprint("key-", i), "", 0).Err(); {
		case IsOnAnotherNode(err):
			elsewhere++
		case err == nil:
			here++
		}
	}
	if elsewhere == 0 || here == 0 || elsewhere+here != 50 {
		t.Errorf("%d keys of 50 are elsewhere, %d here", elsewhere, here)
	}
	if err := node.MSet(t.Context(), "a", 1, "b", 2).Err(); !IsOnAnotherNode(fmt.Errorf("wrapped: %w", err)) {
		t.Errorf("keys of several slots: %v", err)
	}
	if IsOnAnotherNode(nil) || IsOnAnotherNode(errors.New("MOVED 1 127.0.0.1:1")) {
		t.Error("it is not a server's word")
	}
}
