package tiered

import (
	"context"
	"crypto/tls"
	"errors"
	"io"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/remote"
)

// keepingDeadlines returns a client that keeps the deadlines of contexts, over the same connections
// and with the same hooks as the one that was handed in, and reports whether there is one. Clients
// of go-redis keep them only if ContextTimeoutEnabled is set, and wait for seconds otherwise.
// Callers that make their own trips (remote.Options.Inline) must not wait that long, and a hung
// Redis must not tie up connections.
//
// WithTimeout returns a client with its own copy of the options, which can be changed safely, and
// without the hooks. A Cluster's client has no such method.
func keepingDeadlines(client redis.UniversalClient) (_ redis.UniversalClient, keeps bool) {
	node, ok := client.(*redis.Client)
	if !ok {
		return client, false
	}
	if given := node.Options(); !given.ContextTimeoutEnabled {
		node = node.WithTimeout(given.ReadTimeout)
		own := node.Options()
		own.WriteTimeout, own.ContextTimeoutEnabled = given.WriteTimeout, true
		node.AddHook(hooksOf{client.(*redis.Client)})
	}
	return node, true
}

// hooksOf is a hook of a copy of a client. It runs the hooks of the client itself, which can be had
// only by taking a [redis.Conn]. No connection is taken from the pool for that: commands never reach
// the Conn, because its last hook passes them on to the copy.
type hooksOf struct{ client *redis.Client }

// DialHook does nothing: connections are dialed by the client's pool, which runs the client's hooks.
func (hooksOf) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook returns a function that runs the client's hooks, and then next.
func (h hooksOf) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	hooks := h.client.Conn()
	hooks.AddHook(lastHook{process: next})
	return hooks.Process
}

// ProcessPipelineHook is ProcessHook for pipelines. The limiter has none on a single node, but go-redis
// greets the server with one on each new connection.
func (h hooksOf) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		hooks := h.client.Conn()
		hooks.AddHook(lastHook{pipeline: next})
		pipe := hooks.Pipeline()
		for _, cmd := range cmds {
			_ = pipe.Process(ctx, cmd)
		}
		_, err := pipe.Exec(ctx)
		return err
	}
}

// lastHook is a hook after which no other is run.
type lastHook struct {
	process  redis.ProcessHook
	pipeline redis.ProcessPipelineHook
}

func (h lastHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h lastHook) ProcessHook(redis.ProcessHook) redis.ProcessHook { return h.process }

func (h lastHook) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return h.pipeline
}

// checkClient logs settings of the client that will hurt in an outage.
func (l *Limiter) checkClient() {
	c, ok := l.client.(*redis.ClusterClient)
	if !ok {
		return // see keepingDeadlines
	}
	if o := c.Options(); !o.ContextTimeoutEnabled && (o.ReadTimeout <= 0 || o.ReadTimeout > 4*l.config.deadline) {
		l.log.Info("client", "the Redis client waits much longer than the limiter: when Redis hangs, connections stay tied up; "+
			"set ContextTimeoutEnabled, or a ReadTimeout near the deadline, or use tiered.Open",
			"read_timeout", o.ReadTimeout, "deadline", l.config.deadline)
	}
}

// tlsHint says what may be wrong where only one side speaks TLS. No error tells: a server
// that does hangs up, and one that does not waits for more.
func tlsHint(client redis.UniversalClient, err error) string {
	var config *tls.Config
	switch client := client.(type) {
	case *redis.Client:
		config = client.Options().TLSConfig
	case *redis.ClusterClient:
		config = client.Options().TLSConfig
	}
	switch {
	case config == nil && errors.Is(err, io.EOF):
		return "the server hangs up without an answer: it may speak TLS only (set TLSConfig, or use rediss:// in the URL)"
	case config != nil && remote.KindOf(err) == remote.Timeout:
		return "the server does not answer: it may not speak TLS, which the client is set to (TLSConfig)"
	}
	return ""
}
