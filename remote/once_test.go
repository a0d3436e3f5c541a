package remote

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/quietconn"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// losesReplies is a connection that breaks, while lose is set, when the reply to a run of the script is due. By
// then the command has reached the server, and runs.
type losesReplies struct {
	net.Conn
	lose   *atomic.Bool
	script atomic.Bool // the last command written runs the script
}

func (c *losesReplies) Write(p []byte) (int, error) {
	c.script.Store(redistest.RunsDecisions(p))
	return c.Conn.Write(p)
}

func (c *losesReplies) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.lose.Load() && c.script.Load() {
		_ = c.Conn.Close()
		return 0, io.EOF
	}
	return n, err
}

func dialLosing(lose *atomic.Bool) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return &losesReplies{Conn: conn, lose: lose}, err
	}
}

// executions returns how often a server has run the script to its end, in any form.
func executions(t *testing.T, client *redis.Client) int {
	t.Helper()
	info, err := client.InfoMap(context.Background(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, command := range []string{"cmdstat_fcall", "cmdstat_evalsha", "cmdstat_eval"} {
		var calls, failed int
		for field := range strings.SplitSeq(info["Commandstats"][command], ",") {
			name, value, _ := strings.Cut(field, "=")
			switch name {
			case "calls":
				calls, _ = strconv.Atoi(value)
			case "failed_calls":
				failed, _ = strconv.Atoi(value)
			}
		}
		total += calls - failed
	}
	return total
}

// Law 3: a charge whose reply is lost is not sent again, whatever the client's retry settings say. This holds on
// one node, and on a Cluster for single commands and for pipelines.
func TestLaw3LostRepliesAreNotChargedTwice(t *testing.T) {
	t.Parallel()
	var lose atomic.Bool
	t.Run("one node", func(t *testing.T) {
		server := redistest.Start(t)
		client := server.Client(t, func(o *redis.Options) {
			o.MaxRetries = 3
			o.Dialer = dialLosing(&lose)
		})
		checkOnce(t, &lose, client, []*redis.Client{server.Client(t)}, 1)
	})
	t.Run("cluster", func(t *testing.T) {
		cluster := redistest.StartCluster(t, 3)
		client := cluster.Client(t, func(o *redis.ClusterOptions) {
			o.MaxRetries = 3
			o.MaxRedirects = 3
			o.Dialer = dialLosing(&lose)
		})
		var nodes []*redis.Client
		for _, node := range cluster.Nodes() {
			nodes = append(nodes, node.Client(t))
		}
		t.Run("single", func(t *testing.T) { checkOnce(t, &lose, client, nodes, 1) })
		t.Run("pipelined", func(t *testing.T) { checkOnce(t, &lose, client, nodes, 12) })
	})
}

// checkOnce runs batches over the given number of keys, all of whose replies get lost, and counts on the servers
// how often the script ran.
func checkOnce(t *testing.T, lose *atomic.Bool, client redis.UniversalClient, nodes []*redis.Client, keys int) {
	script := NewScript(client)
	rule := newRule(t, limit.PerHour(1000), limit.SlidingLog())
	prefix := redistest.Prefix()
	entries := make([]Entry, keys)
	for i := range entries {
		entries[i] = Entry{Key: fmt.Sprintf("%s{%d}", prefix, i), Rule: rule, Cost: 1}
	}
	remaining := func() (sum int64) {
		t.Helper()
		replies, err := script.Run(context.Background(), entries, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range replies {
			if r.Err != nil || r.Status != Allowed {
				t.Fatalf("%+v", r)
			}
			sum += r.Remaining
		}
		return sum
	}
	remaining() // loads the script everywhere
	ran := func() (sum int) {
		for _, node := range nodes {
			sum += executions(t, node)
		}
		return sum
	}

	before, runs := remaining(), ran()
	const lost = 5
	for range lost {
		lose.Store(true)
		replies, err := script.Run(context.Background(), entries, 0)
		if err == nil {
			t.Errorf("replies %+v although they were lost", replies)
		}
		lose.Store(false)
	}
	if got := ran() - runs; got != lost*keys {
		t.Errorf("%d calls ran %d times", lost*keys, got)
	}
	if charged := before - remaining() - int64(keys); charged != int64(lost*keys) {
		t.Errorf("%d units charged for %d calls", charged, lost*keys)
	}
}

func TestClusterDecidesOverAllSlots(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	b, trips := newBatcher(t, cluster.Client(t))
	keys, err := NewKeyspace("tl")
	if err != nil {
		t.Fatal(err)
	}
	rule := newRule(t, limit.PerHour(3), limit.SlidingLog())
	for round := range 4 {
		results := make(chan Reply, 200)
		for i := range 200 {
			go func() {
				results <- mustDecide(t, b, Entry{Key: keys.Key("r", NewUserKey(fmt.Sprint("user", i))), Rule: rule, Cost: 1})
			}()
		}
		want := Allowed
		if round == 3 {
			want = Denied
		}
		for range 200 {
			if r := <-results; r.Status != want {
				t.Fatalf("round %d: %+v", round, r)
			}
		}
		// A node that starts without the script does not cause a failure either.
		for _, node := range cluster.Nodes() {
			if err := node.Client(t).ScriptFlush(context.Background()).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, failed := trips.trips(); failed != nil {
		t.Errorf("failures %v", failed)
	}
}

// If one node of a Cluster is gone, decisions about its keys fail, and those about other keys are made.
func TestClusterWithANodeGone(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, "--cluster-require-full-coverage", "no")
	b, _ := newBatcher(t, cluster.Client(t), deadline(2*time.Second))
	rule := newRule(t, limit.PerHour(3), limit.GCRA())
	cluster.Nodes()[0].Kill()
	decided := 0
	for i := range 60 {
		if _, err := b.Decide(context.Background(), Entry{Key: fmt.Sprintf("{%d}", i), Rule: rule, Cost: 1}); err == nil {
			decided++
		}
	}
	if decided < 20 || decided == 60 {
		t.Errorf("%d of 60 keys decided with one of three nodes gone", decided)
	}
}

// Law 3: if one node of a Cluster is gone, go-redis tries to reach it until the deadline. Meanwhile the other node
// has charged its part of the trip, so the trip's error must not say that nothing was charged.
func TestLaw3ATripToANodeThatIsGone(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, "--cluster-require-full-coverage", "no")
	client, ctx := cluster.Client(t), context.Background()
	script := NewScript(client)
	rule := newRule(t, limit.PerHour(1000), limit.SlidingLog())
	there, gone := Entry{Key: "{a}", Rule: rule, Cost: 1}, Entry{Key: "{b}", Rule: rule, Cost: 1}
	nodes := cluster.Nodes()
	if keySlot(gone.Key) < 16384/2 == (keySlot(there.Key) < 16384/2) {
		t.Fatal("both keys are on the same node")
	}
	if keySlot(gone.Key) < 16384/2 {
		nodes[0], nodes[1] = nodes[1], nodes[0]
	}
	if _, err := script.Run(ctx, []Entry{there, gone}, 0); err != nil {
		t.Fatal(err)
	}
	nodes[1].Kill()
	_, _ = script.Run(ctx, []Entry{gone}, 0) // the connection to the killed node breaks, and new ones are refused

	for _, entries := range [][]Entry{{there, gone}, {gone, there}} {
		runs, within := executions(t, nodes[0].Client(t)), 50*time.Millisecond
		var replies []Reply
		var err error
		redistest.Eventually(t, "the part for the live node is run", func() bool {
			within *= 2 // longer, in case the time was too short on a busy machine
			short, cancel := context.WithTimeout(ctx, within)
			defer cancel()
			replies, err = script.Run(short, entries, 0)
			return executions(t, nodes[0].Client(t)) > runs
		})
		for i, e := range entries {
			partErr := err
			if err == nil {
				partErr = replies[i].Err
			}
			if e.Key == there.Key && partErr != nil && !MayHaveRun(partErr) {
				t.Errorf("charged, but the error says that it was not: %v", partErr)
			}
		}
	}
}

func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	b, _ := newBatcher(t, sentinel.Client(t), deadline(time.Second))
	rule := newRule(t, limit.PerHour(100), limit.SlidingLog())
	mustDecide(t, b, Entry{Key: "k", Rule: rule, Cost: 1})
	sentinel.Master().Kill()
	var r Reply
	redistest.Eventually(t, "decisions by the new master", func() bool {
		var err error
		r, err = b.Decide(context.Background(), Entry{Key: "k", Rule: rule, Cost: 1})
		return err == nil
	})
	if r.Status != Allowed {
		t.Errorf("%+v", r)
	}
}

// closesOnce is a connection to addr. A write finds it closed if closed is set to that address.
type closesOnce struct {
	net.Conn
	addr   string
	closed *atomic.Value
}

func (c *closesOnce) Write(p []byte) (int, error) {
	if c.closed.CompareAndSwap(c.addr, "") {
		return 0, quietconn.ErrClosedIdle
	}
	return c.Conn.Write(p)
}

// Law 3: behind a client of an unknown type there may be several servers. If one of them has closed its connection,
// only what was meant for that one is sent again.
func TestLaw3OneOfSeveralServersHasClosedItsConnection(t *testing.T) {
	t.Parallel()
	var closed atomic.Value
	options := *redistest.SharedCluster(t).Client(t).Options()
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &closesOnce{conn, addr, &closed}, err
	}
	client := redis.NewClusterClient(&options)
	t.Cleanup(func() { _ = client.Close() })
	script := NewScript(struct{ redis.UniversalClient }{client})
	rule := newRule(t, limit.PerHour(10), limit.SlidingLog())
	var entries []Entry
	for i := range 12 {
		entries = append(entries, Entry{Key: redistest.Prefix() + strconv.Itoa(i), Rule: rule, Cost: 1})
	}
	runAll(t, script, entries)
	master, err := client.MasterForKey(t.Context(), entries[0].Key)
	if err != nil {
		t.Fatal(err)
	}
	closed.Store(master.Options().Addr)
	for i, r := range runAll(t, script, entries) {
		if r.Remaining != 8 {
			t.Errorf("key %d: %d remain after two charges, want 8", i, r.Remaining)
		}
	}
	if closed.Load() != "" {
		t.Error("no connection was found closed")
	}
}
