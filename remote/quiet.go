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

// quiet makes the connections quiet that a client dials from now on, see [quietconn.Dialer]. Those with TLS stay as
// they are, as do all that a Dialer of the client's own returns as another type than *net.TCPConn or *net.UnixConn.
func quiet(client *redis.Client) {
	if addedOnce(&quieting, client) {
		client.AddHook(quietHook{})
	}
}

var quieting sync.Map // true, by weak pointer to the client

// addedOnce reports whether a client is not among the added ones yet, and adds it. It does not keep the client
// from being collected.
func addedOnce[Client any](added *sync.Map, client *Client) bool {
	key := weak.Make(client)
	if _, before := added.LoadOrStore(key, true); before {
		return false
	}
	runtime.AddCleanup(client, func(key weak.Pointer[Client]) { added.Delete(key) }, key)
	return true
}

// quietHook is a hook that makes dialed connections quiet.
type quietHook struct{}

func (quietHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return quietconn.Client(conn), nil
	}
}

func (quietHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (quietHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

const (
	// dialBehindAtMost is the number of unused connections from which on a client is in use by others, who would
	// mix them anyway.
	dialBehindAtMost = 4
	// nearWithin is how soon a Redis answers for which quiet connections matter.
	nearWithin = 5 * time.Millisecond
)

// DialAnother makes clients that have unused connections dial one more, where they will take the next one from.
// What a client dialed before [Adapt] is not quiet, and a client that was used to see whether Redis is there
// would keep using that connection. It does nothing where Redis is far away.
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
	before := client.PoolStats()
	if idle := before.IdleConns; idle == 0 || idle > dialBehindAtMost || int(before.TotalConns)+spareConns > mostConns(client) {
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
		_ = conn.Close() // the new one last, which makes it the first to be taken again
	}
}
