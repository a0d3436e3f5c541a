package redistest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// slotCount is the number of hash slots of every Redis Cluster.
const slotCount = 16384

// clustersInUse limits how many Clusters the tests of a package use at once, apart from the shared one. Many of these
// tests check that nodes act in time, and their nodes and clients need more of the processors than those of other
// tests. Tests wait for their turn when their Cluster has started, because a Cluster that starts mostly waits.
var clustersInUse = make(chan struct{}, 3)

// Cluster is a Redis Cluster. It starts as masters without replicas.
type Cluster struct {
	args    []string // of every node's command line
	masters int
	nodes   []*Server // the masters of the start, then the nodes added
}

// StartCluster starts a Cluster whose masters own equal shares of the slots. It returns when every master sees the
// whole Cluster and fewer than three other Clusters are in use. That takes two to three seconds at least, because a
// master serves nothing in its first two seconds. A test that needs several Clusters at once must not run beside
// others of its kind, which could wait for each other. args are added to each command line.
func StartCluster(tb testing.TB, masters int, args ...string) *Cluster {
	tb.Helper()
	if masters < 1 || masters > slotCount {
		tb.Fatalf("redistest: a Cluster of %d masters cannot be; ask for 1 to %d", masters, slotCount)
	}
	inUse := false
	tb.Cleanup(func() { // after the nodes have ended
		if inUse {
			<-clustersInUse
		}
	})
	c := &Cluster{args: args, masters: masters}
	for range masters {
		c.nodes = append(c.nodes, startClusterNode(tb, args))
	}
	if err := c.form(tb); err != nil {
		tb.Fatal(err)
	}
	clustersInUse <- struct{}{}
	inUse = true
	return c
}

func startClusterNode(tb testing.TB, args []string) *Server {
	tb.Helper()
	return start(tb, func(port int) []string { return append(nodeArgs(port), args...) })
}

// nodeArgs returns the command line of a node.
func nodeArgs(port int) []string {
	all := append(plainArgs(port),
		"--cluster-enabled", "yes",
		"--cluster-config-file", "nodes.conf",
	)
	return append(all, promptReplication()...)
}

// form gives each node its slots, introduces all nodes to the first, and waits until they agree.
func (c *Cluster) form(tb testing.TB) error {
	ctx := context.Background()
	var clients []*redis.Client
	for _, node := range c.nodes {
		clients = append(clients, node.Client(tb))
	}
	first := c.nodes[0]
	for i, client := range clients {
		addSlots := []any{"CLUSTER", "ADDSLOTS"} // ADDSLOTSRANGE came with Redis 7
		for slot := i * slotCount / len(clients); slot < (i+1)*slotCount/len(clients); slot++ {
			addSlots = append(addSlots, slot)
		}
		// Distinct epochs from the start save the nodes from having to resolve conflicts.
		for _, args := range [][]any{
			{"CLUSTER", "SET-CONFIG-EPOCH", i + 1},
			addSlots,
			{"CLUSTER", "MEET", "127.0.0.1", first.port},
		} {
			if i == 0 && args[1] == "MEET" {
				continue
			}
			if err := client.Do(ctx, args...).Err(); err != nil {
				return fmt.Errorf("redistest: node %d of the Cluster, %v %v: %w", i, args[0], args[1], err)
			}
		}
	}
	return c.agree(tb)
}

// agree waits until every node sees the whole Cluster.
func (c *Cluster) agree(tb testing.TB) error {
	for i, node := range c.nodes {
		client := node.Client(tb)
		err := poll(30*time.Second, func() error { return seesCluster(context.Background(), client, len(c.nodes)) })
		if err != nil {
			return fmt.Errorf("redistest: node %d of the Cluster: %w", i, err)
		}
	}
	return nil
}

// seesCluster checks that the client's node knows as many nodes as size, and can reach the owner of every slot.
func seesCluster(ctx context.Context, client *redis.Client, size int) error {
	info, err := client.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	for _, want := range []string{
		"cluster_state:ok",
		"cluster_slots_ok:" + strconv.Itoa(slotCount),
		"cluster_known_nodes:" + strconv.Itoa(size),
	} {
		if !strings.Contains(info, want+"\r\n") {
			return fmt.Errorf("no %s in CLUSTER INFO:\n%s", want, info)
		}
	}
	return nil
}

// Nodes returns the masters that the Cluster started with. The first of them owned the lowest slots.
func (c *Cluster) Nodes() []*Server {
	return slices.Clone(c.nodes[:c.masters])
}

// Addrs returns "host:port" of each of [Cluster.Nodes].
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, node := range c.nodes[:c.masters] {
		addrs = append(addrs, node.Addr())
	}
	return addrs
}

// Client returns a client of the Cluster, which is closed when the test ends. Like the client of a single server it
// obeys contexts and does not retry, but go-redis follows redirections, and may then send a command again after a
// network error. change may adjust its options.
func (c *Cluster) Client(tb testing.TB, change ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	tb.Helper()
	options := &redis.ClusterOptions{
		Addrs:                    c.Addrs(),
		ContextTimeoutEnabled:    true,
		MaxRetries:               -1,
		DialerRetries:            1,
		DialTimeout:              dialTimeout,
		DisableIdentity:          true,
		MaintNotificationsConfig: noMaintNotifications(),
	}
	for _, f := range change {
		f(options)
	}
	client := redis.NewClusterClient(options)
	tb.Cleanup(func() { _ = client.Close() })
	return client
}
