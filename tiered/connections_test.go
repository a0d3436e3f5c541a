package tiered

import (
	"context"
	"fmt"
	"net"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/quietconn"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// runsSent is a hook that counts the runs of the script that are sent over quiet connections and over others. Added
// before all other hooks, it sees the connections as the client does.
type runsSent struct {
	quietType       reflect.Type
	quiet, ordinary atomic.Int64
}

func countRuns(t *testing.T) *runsSent {
	t.Helper()
	plain, err := net.Dial("tcp", redistest.Shared(t).Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	return &runsSent{quietType: reflect.TypeOf(quietconn.Client(plain))}
}

func (r *runsSent) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if reflect.TypeOf(conn) == r.quietType {
			return countedConn{conn, &r.quiet}, nil
		}
		return countedConn{conn, &r.ordinary}, nil
	}
}

func (*runsSent) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (*runsSent) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

type countedConn struct {
	net.Conn
	runs *atomic.Int64
}

func (c countedConn) Write(p []byte) (int, error) {
	if redistest.RunsDecisions(p) {
		c.runs.Add(1)
	}
	return c.Conn.Write(p)
}

// Decisions use quiet connections even if the caller made the client, and even if the client already has
// connections.
func TestConnectionsOfAHandedInClientAreQuiet(t *testing.T) {
	for name, newClient := range map[string]func(*runsSent) redis.UniversalClient{
		"one node": func(runs *runsSent) redis.UniversalClient {
			client := redistest.Shared(t).Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = false })
			client.AddHook(runs)
			return client
		},
		"Cluster": func(runs *runsSent) redis.UniversalClient {
			client := redistest.SharedCluster(t).Client(t)
			client.OnNewNode(func(node *redis.Client) { node.AddHook(runs) })
			return client
		},
	} {
		for _, used := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, used before: %v", name, used), func(t *testing.T) {
				// On a busy machine, Redis may appear to be far away, and the limiter then leaves the connections
				// alone. The test then tries again. The deadline is long, because calls that miss it may open the
				// breaker, and then no more are sent.
				redistest.Eventually(t, "all runs of the script are sent over quiet connections", func() bool {
					runs := countRuns(t)
					client := newClient(runs)
					for i := 0; used && i < 100; i++ { // connects to all masters
						if err := client.Exists(t.Context(), fmt.Sprint(i)).Err(); err != nil {
							t.Fatal(err)
						}
					}
					limiter, err := New(client, Prefix(redistest.Prefix()), Deadline(5*time.Second))
					if err != nil {
						t.Fatal(err)
					}
					defer limiter.Close()
					rule := limiter.MustRule("r", limit.PerHour(10))
					runs.quiet.Store(0)
					runs.ordinary.Store(0)
					for i := range 100 {
						if _, err := rule.Allow(t.Context(), fmt.Sprint(i)); err != nil {
							t.Fatal(err)
						}
					}
					return runs.quiet.Load() >= 90 && runs.ordinary.Load() == 0
				})
			})
		}
	}
}
