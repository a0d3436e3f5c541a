package remote

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Adapt prepares a client of one node for a limiter. It makes the connections that the client dials from now on
// quiet, and makes the client report why a server turns it away. It returns a client with the same connections and
// hooks that keeps the deadlines of contexts. A go-redis client keeps them only if ContextTimeoutEnabled is set, and
// waits for seconds otherwise. Callers that make their own trips (Options.Inline) must not wait that long, and a hung
// Redis must not tie up connections.
func Adapt(client *redis.Client) *redis.Client {
	if hookedFirst(client) {
		client.AddHook(quietHook{})
		client.AddHook(greetingHook{})
	}
	given := client.Options()
	if given.ContextTimeoutEnabled {
		return client
	}
	// WithTimeout returns a client with its own copy of the options, which can be changed safely, and without the
	// hooks.
	keeps := client.WithTimeout(given.ReadTimeout)
	own := keeps.Options()
	own.WriteTimeout, own.ContextTimeoutEnabled = given.WriteTimeout, true
	keeps.AddHook(hooksOf{client: client})
	return keeps
}

// hooksOf is a hook of a copy of a client, and runs the hooks of the original client. go-redis gives access to
// a client's hooks only through a [redis.Conn]. No connection is taken from the pool for that Conn: commands
// never reach it, because its last hook passes them on to the copy.
//
// It has no DialHook: connections are dialed by the client's pool, which runs the client's hooks.
type hooksOf struct {
	noHook
	client *redis.Client
}

// ProcessHook returns a function that runs the client's hooks, and then next.
func (h hooksOf) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	hooks := h.client.Conn()
	hooks.AddHook(lastHook{process: next})
	return hooks.Process
}

// ProcessPipelineHook is ProcessHook for pipelines. The limiter sends no pipelines to a single node, but
// go-redis greets the server with one on each new connection.
func (h hooksOf) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		hooks := h.client.Conn()
		hooks.AddHook(lastHook{pipeline: next})
		return sendPipelined(ctx, hooks, cmds)
	}
}

// lastHook is a hook after which no other is run.
type lastHook struct {
	noHook
	process  redis.ProcessHook
	pipeline redis.ProcessPipelineHook
}

func (h lastHook) ProcessHook(redis.ProcessHook) redis.ProcessHook { return h.process }

func (h lastHook) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return h.pipeline
}
