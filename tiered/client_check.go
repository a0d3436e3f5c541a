package tiered

import (
	"crypto/tls"
	"errors"
	"io"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/remote"
)

// checkClient logs settings of the client that are harmful in an outage.
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

// tlsHint returns a hint if only one side may use TLS. No error shows this: a server with TLS
// closes the connection, and one without waits for more input.
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
