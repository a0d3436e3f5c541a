package redistest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// AddReplicas gives each master a replica. It returns the replicas in the order of the masters, when all nodes know
// them and they have their copies. args are added to each command line. A replica takes over when its master has
// been silent for cluster-node-timeout and a majority of the masters agrees.
func (c *Cluster) AddReplicas(tb testing.TB, args ...string) []*Server {
	tb.Helper()
	masters := c.Nodes()
	replicas := c.addNodes(tb, len(masters), args)
	for i, replica := range replicas {
		err := replica.Client(tb).Do(context.Background(), "CLUSTER", "REPLICATE", nodeID(tb, masters[i])).Err()
		if err != nil {
			tb.Fatalf("redistest: making %s a replica of %s: %v", replica.Addr(), masters[i].Addr(), err)
		}
	}
	for i, replica := range replicas {
		if err := poll(30*time.Second, func() error { return c.knowReplica(tb, masters[i]) }); err != nil {
			tb.Fatalf("redistest: replica %s of %s: %v", replica.Addr(), masters[i].Addr(), err)
		}
	}
	return replicas
}

// knowReplica checks that a replica follows the master, and that all nodes know the replica.
func (c *Cluster) knowReplica(tb testing.TB, master *Server) error {
	if err := followed(tb, master); err != nil {
		return err
	}
	ctx := context.Background()
	want := "slave " + nodeID(tb, master)
	for _, node := range c.nodes {
		nodes, err := node.Client(tb).ClusterNodes(ctx).Result()
		if err != nil {
			return err
		}
		if !strings.Contains(nodes, want) {
			return fmt.Errorf("node %s knows no %q:\n%s", node.Addr(), want, nodes)
		}
	}
	return nil
}

// AddNode starts a further node, which owns no slots. It returns when this node and the others know each other.
// args are added to its command line.
func (c *Cluster) AddNode(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return c.addNodes(tb, 1, args)[0]
}

func (c *Cluster) addNodes(tb testing.TB, count int, args []string) (added []*Server) {
	tb.Helper()
	first := c.nodes[0]
	for range count {
		node := startClusterNode(tb, append(slices.Clone(c.args), args...))
		c.nodes = append(c.nodes, node)
		added = append(added, node)
		err := node.Client(tb).Do(context.Background(), "CLUSTER", "MEET", "127.0.0.1", first.port).Err()
		if err != nil {
			tb.Fatalf("redistest: introducing node %s to the Cluster: %v", node.Addr(), err)
		}
	}
	if err := c.agree(tb); err != nil {
		tb.Fatal(err)
	}
	return added
}

// MoveSlots moves slots, with their keys, from one master to another while clients continue. It declares that all
// of the slots are being moved, moves a key of each slot, calls halfway if that is not nil, moves the other keys,
// and declares that the slots have moved.
func (c *Cluster) MoveSlots(tb testing.TB, from, to *Server, slots []int, halfway func()) {
	tb.Helper()
	ctx := context.Background()
	source, target := from.Client(tb), to.Client(tb)
	fromID, toID := nodeID(tb, from), nodeID(tb, to)
	do := func(client *redis.Client, args ...any) {
		tb.Helper()
		if err := client.Do(ctx, args...).Err(); err != nil {
			tb.Fatalf("redistest: moving slots from %s to %s, %v: %v", from.Addr(), to.Addr(), args, err)
		}
	}
	for _, slot := range slots {
		do(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID)
		do(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
	}
	for left := slots; len(left) > 0; {
		left = slices.DeleteFunc(slices.Clone(left), func(slot int) bool {
			keys, err := source.ClusterGetKeysInSlot(ctx, slot, 1).Result()
			if err != nil {
				tb.Fatalf("redistest: the keys of slot %d: %v", slot, err)
			}
			for _, key := range keys {
				do(source, "MIGRATE", "127.0.0.1", to.port, key, 0, 5000)
			}
			return len(keys) == 0
		})
		if halfway != nil {
			halfway()
			halfway = nil
		}
	}
	for _, slot := range slots {
		do(target, "CLUSTER", "SETSLOT", slot, "NODE", toID) // first, or no node owns it for a moment
		do(source, "CLUSTER", "SETSLOT", slot, "NODE", toID)
	}
}

// nodeID returns the ID of a node within the Cluster.
func nodeID(tb testing.TB, node *Server) string {
	tb.Helper()
	id, err := node.Client(tb).ClusterMyID(context.Background()).Result()
	if err != nil {
		tb.Fatalf("redistest: the id of node %s: %v", node.Addr(), err)
	}
	return id
}
