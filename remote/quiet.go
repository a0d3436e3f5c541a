package remote

import (
	"context"
	"net"
	"runtime"
	"sync"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/quietconn"
)

// hooked has the clients that got their hook: quietHook those of one node, director those of a Cluster.
var hooked sync.Map // true, by weak pointer to the client

// hookedFirst adds a client to the hooked ones, and reports whether it was not among them yet. It does not keep the
// client from being garbage-collected.
func hookedFirst[Client any](client *Client) bool {
	key := weak.Make(client)
	if _, before := hooked.LoadOrStore(key, true); before {
		return false
	}
	runtime.AddCleanup(client, func(key weak.Pointer[Client]) { hooked.Delete(key) }, key)
	return true
}

// noHook is a hook that changes nothing.
type noHook struct{}

func (noHook) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (noHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (noHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// quietHook is a hook that makes dialed connections quiet, see [quietconn.Dialer]. Connections with TLS stay as they
// are. So does each connection that the client's own Dialer returns as a type other than *net.TCPConn or
// *net.UnixConn.
type quietHook struct{ noHook }

func (quietHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return quietconn.Client(conn), nil
	}
}

const (
	// maxUnused is the largest number of unused connections of a client for which DialAnother dials one. A client
	// with more is in use by others, who would use its quiet and other connections alike.
	maxUnused = 4
	// nearWithin is how soon Redis must answer for quiet connections to matter.
	nearWithin = 5 * time.Millisecond
)

// DialAnother makes a client that has unused connections dial one more, in the place from which the client
// takes its next connection. Connections that were dialed before [Adapt] are not quiet, and a client that was
// used to see whether Redis is there would keep using such a connection. DialAnother does nothing where Redis
// is far away.
func (s *Script) DialAnother(ctx context.Context) {
	if s.nodes.cluster != nil {
		_ = s.nodes.cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			dialAnother(ctx, Adapt(node))
			return nil
		})
	} else if client, ok := s.client.(*redis.Client); ok {
		dialAnother(ctx, client)
	}
}

func dialAnother(ctx context.Context, client *redis.Client) {
	if !mayHold(client) {
		return
	}
	before := client.PoolStats()
	if idle := before.IdleConns; idle == 0 || idle > maxUnused || int(before.TotalConns)+spareConns > mostConns(client) {
		return
	}
	var taken []*redis.Conn
	for range before.IdleConns + 1 {
		conn := client.Conn()
		taken = append(taken, conn)
		began := time.Now()
		_ = conn.Ping(ctx).Err() // whatever the answer, it takes a connection out of the pool
		if client.PoolStats().Misses > before.Misses || time.Since(began) > nearWithin {
			break
		}
	}
	for _, conn := range taken {
		_ = conn.Close() // the new one last, so that it is the first to be taken again
	}
}
