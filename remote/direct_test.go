package remote

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// counting is a hook that counts commands that run the script, pipelines of such commands, and SETs by other code.
type counting struct{ commands, pipelines, others atomic.Int64 }

func (*counting) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if name := cmd.Name(); name == "fcall" || name == "evalsha" {
			c.commands.Add(1)
		} else if name == "set" {
			c.others.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (c *counting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if name := cmds[0].Name(); name == "fcall" || name == "evalsha" {
			c.pipelines.Add(1)
		}
		return next(ctx, cmds)
	}
}

// The hooks of a Cluster's client and the hooks of its masters' clients see each command once, however many
// limiters use the client. All other commands of the client run as before.
func TestHooksOfAClusterRun(t *testing.T) {
	t.Parallel()
	for _, keeps := range []bool{false, true} {
		var ofCluster, ofNodes counting
		client := redistest.SharedCluster(t).Client(t, func(o *redis.ClusterOptions) { o.ContextTimeoutEnabled = keeps })
		client.OnNewNode(func(node *redis.Client) { node.AddHook(&ofNodes) })
		client.AddHook(&ofCluster)
		ctx, rule := context.Background(), newRule(t, limit.PerHour(1000), limit.GCRA())
		key := redistest.Prefix() + "{hooks}"
		for i := range 3 {
			script := NewScript(client)
			if i == 1 {
				script.HoldConnections()
			}
			script.Prepare(ctx)
			for _, hook := range []*counting{&ofCluster, &ofNodes} {
				hook.commands.Store(0)
				hook.pipelines.Store(0)
				hook.others.Store(0)
			}
			runAll(t, script, []Entry{{Key: key, Rule: rule, Cost: 1}})
			runAll(t, script, []Entry{{Key: key, Rule: rule, Cost: 1}})
			script.ReturnIdleConnections()
			// These entries are of two slots of one master.
			var two []Entry
			for n := byte('a'); len(two) < 2; n++ {
				other := Entry{Key: redistest.Prefix() + "{" + string(n) + "}", Rule: rule, Cost: 1}
				if script.nodeOf(ctx, other.Key) == script.nodeOf(ctx, key) {
					two = append(two, other)
				}
			}
			runAll(t, script, two)
			if err := client.Set(ctx, key+"other", 1, 0).Err(); err != nil {
				t.Error(err)
			}
			for name, hook := range map[string]*counting{"the Cluster's client": &ofCluster, "the nodes' clients": &ofNodes} {
				if c, p, o := hook.commands.Load(), hook.pipelines.Load(), hook.others.Load(); c != 2 || p != 1 || o != 1 {
					t.Errorf("script %d, ContextTimeoutEnabled is %v: hooks of %s have seen %d commands, %d pipelines and %d others, want 2, 1 and 1", i, keeps, name, c, p, o)
				}
			}
		}
	}
}

// Once a node has not been asked for a while, the script keeps nothing of it.
func TestNodesAreForgotten(t *testing.T) {
	t.Parallel()
	script := NewScript(redistest.SharedCluster(t).Client(t))
	script.HoldConnections()
	n := script.nodeOf(context.Background(), "k")
	script.ReturnIdleConnections()
	if script.nodeOf(context.Background(), "k") != n {
		t.Error("a node that was just asked is forgotten")
	}
	n.lookedUp.Store(localTime() - forgetAfter.Microseconds() - 1)
	script.ReturnIdleConnections()
	if script.nodeOf(context.Background(), "k") == n {
		t.Error("a node that was not asked for long is kept")
	}
}
