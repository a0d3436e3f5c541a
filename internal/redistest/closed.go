package redistest

import (
	"context"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// KillIdle puts n connections into a client's pool, some of which may be closed already. Then it has the server
// close all connections except admin's. If the client may send commands of its own meanwhile, as a limiter's does,
// they must take part in a Gate.
func KillIdle(t testing.TB, client, admin *redis.Client, n int, gates ...*Gate) {
	t.Helper()
	var idle []*redis.Conn
	for range n {
		conn := client.Conn()
		idle = append(idle, conn)
		_ = conn.Ping(t.Context()).Err()
	}
	for _, conn := range idle {
		_ = conn.Close() // back to the pool
	}
	for _, g := range gates {
		g.mu.Lock()
		defer g.mu.Unlock()
	}
	if err := admin.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
		t.Fatal(err)
	}
}

// Gate is a hook of a client. While KillIdle closes connections, none of the client's commands is in flight.
type Gate struct{ mu sync.RWMutex }

// DialHook implements [redis.Hook].
func (g *Gate) DialHook(next redis.DialHook) redis.DialHook { return next }

// inGate marks the context of a command in flight. To make a connection, it sends further commands.
type inGate struct{}

// enter returns the context of a command, and a function to call at its end.
func (g *Gate) enter(ctx context.Context) (context.Context, func()) {
	if ctx.Value(inGate{}) != nil {
		return ctx, func() {}
	}
	g.mu.RLock()
	return context.WithValue(ctx, inGate{}, true), g.mu.RUnlock
}

// ProcessHook implements [redis.Hook].
func (g *Gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		ctx, leave := g.enter(ctx)
		defer leave()
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (g *Gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		ctx, leave := g.enter(ctx)
		defer leave()
		return next(ctx, cmds)
	}
}
