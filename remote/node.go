package remote

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/quietconn"
)

// node is a server that runs the script: the only one, or a master of a Cluster. A client of an unknown type,
// which may have several servers behind it, counts as one node.
type node struct {
	client   sender
	cluster  sender // nil: not a node of a Cluster
	held     heldConns
	clocks   *clocks
	lookedUp atomic.Int64 // local time of its last look-up
}

// sender is what clients and connections of go-redis have in common.
type sender interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

// send sends commands, and returns once each of them has its reply or error.
func send(ctx context.Context, to sender, cmds []redis.Cmder) error {
	if len(cmds) == 1 {
		return to.Process(ctx, cmds[0])
	}
	return sendPipelined(ctx, to, cmds)
}

// sendPipelined is send for commands that go in a pipeline even if there is only one.
func sendPipelined(ctx context.Context, to sender, cmds []redis.Cmder) error {
	pipe := to.Pipeline()
	for _, cmd := range cmds {
		_ = pipe.Process(ctx, cmd)
	}
	_, err := pipe.Exec(ctx)
	return err
}

// send sends commands to the node, as the function of the same name does.
func (n *node) send(ctx context.Context, cmds ...redis.Cmder) error {
	if n.cluster == nil {
		return n.deliver(ctx, cmds)
	}
	directed := make([]redis.Cmder, len(cmds))
	for i, cmd := range cmds {
		directed[i] = directedCmd{cmd, n}
	}
	return send(ctx, n.cluster, directed)
}

// withoutHeld returns the node for commands that must not use the held connections, which are for trips.
func (n *node) withoutHeld() *node { return &node{client: n.client, cluster: n.cluster} }

// deliver sends commands by the client of the node. If it finds that the server closed a connection before the
// commands were sent, it tries the next connection. The loop ends: each such connection leaves the pool, and a
// new connection is not closed. Only the commands with that error are sent again (law 3): a client of an unknown type
// may have sent the others to other servers.
func (n *node) deliver(ctx context.Context, cmds []redis.Cmder) error {
	for {
		var err error
		if n.held.client == nil {
			err = send(ctx, n.client, cmds)
		} else {
			err = n.held.send(ctx, cmds)
		}
		if !wasNotSent(err) {
			return err
		}
		cmds = slices.DeleteFunc(slices.Clone(cmds), func(cmd redis.Cmder) bool { return !wasNotSent(cmd.Err()) })
		if len(cmds) == 0 {
			return err
		}
	}
}

// wasNotSent reports whether an error says that the connection was found closed before the commands were sent. One
// such error is go-redis's own: before it sends a pipeline on a connection that has never been in its pool, it reads
// what has arrived. A server that closes a connection with TLS sends a last record, after which go-redis finds the
// end of the stream.
func wasNotSent(err error) bool {
	return errors.Is(err, quietconn.ErrClosedIdle) || errors.Is(err, io.EOF) && strings.Contains(err.Error(), "pipeline push drain: ")
}

// nodes finds the masters of a Cluster.
//
// Commands go from the hooks of the Cluster's client straight to the client of the master (see direct.go). By
// itself, the Cluster's client takes as much time as the rest of a decision: it looks up each command's routing
// policy, starts a goroutine for each node of a pipeline, and may wait for longer than the deadline. It is only
// asked which master has a key, and it sends the commands that a master redirects (see redirect.go).
type nodes struct {
	cluster  *redis.ClusterClient
	hold     bool     // whether nodes hold connections, see Script.HoldConnections
	known    sync.Map // *node, by the Cluster's own client of it, *redis.Client
	mapped   atomic.Bool
	changed  atomic.Bool // see Script.MayHaveChanged
	detached detached
}

// forgetAfter is how long a node is kept after its last look-up. When masters are replaced, so are their
// clients.
const forgetAfter = time.Minute

// of returns the master that has a key. It returns nil if the Cluster has not said yet which master has which
// slot, and does not say so before ctx ends.
func (ns *nodes) of(ctx context.Context, key string) *node {
	if !ns.mapped.Load() && !ns.learn(ctx, key) {
		return nil
	}
	client, err := ns.cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil
	}
	known, ok := ns.known.Load(client)
	if !ok {
		own := Adapt(client)
		n := &node{client: own, cluster: ns.cluster, clocks: newClocks(false)}
		if ns.hold && mayHold(own) {
			n.held.client = own
		}
		known, _ = ns.known.LoadOrStore(client, n)
	}
	n := known.(*node)
	n.lookedUp.Store(localTime())
	return n
}

// learn makes the Cluster's client ask for the masters for the first time, which may take longer than ctx
// lasts. It reports whether they are known.
func (ns *nodes) learn(ctx context.Context, key string) bool {
	return ns.detached.run(ctx, func() {
		if _, err := ns.cluster.MasterForKey(context.Background(), key); err == nil {
			ns.mapped.Store(true)
		}
	}) && ns.mapped.Load()
}

// returnIdle returns held connections to the pools, and forgets nodes that have not been looked up for long.
func (ns *nodes) returnIdle() {
	now := localTime()
	ns.known.Range(func(client, known any) bool {
		n := known.(*node)
		forget := now-n.lookedUp.Load() > forgetAfter.Microseconds()
		if n.held.returnAll(forget) && forget {
			ns.known.Delete(client)
		}
		return true
	})
}
