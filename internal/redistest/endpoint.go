package redistest

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Endpoint is where a server listens.
type Endpoint struct{ port int }

// Addr returns "host:port".
func (e Endpoint) Addr() string { return loopback(e.port) }

// URL returns the address in the form that redis.ParseURL reads.
func (e Endpoint) URL() string { return "redis://" + e.Addr() + "/0" }

// Client returns a client of the server, which is closed when the test ends. It sends each command once and obeys
// contexts, so that tests see what happened, and not the result of a retry. change may adjust its options.
func (e Endpoint) Client(tb testing.TB, change ...func(*redis.Options)) *redis.Client {
	tb.Helper()
	client := newClient(e.Addr(), change...)
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

func newClient(addr string, change ...func(*redis.Options)) *redis.Client {
	options := &redis.Options{
		Addr:                     addr,
		ContextTimeoutEnabled:    true,
		MaxRetries:               -1,
		DialerRetries:            1,
		DialTimeout:              dialTimeout,
		DisableIdentity:          true,
		MaintNotificationsConfig: noMaintNotifications(),
	}
	for _, f := range change {
		f(options)
	}
	return redis.NewClient(options)
}

// dialTimeout is generous. It matters only if a connection hangs, which on loopback happens only on a busy machine.
const dialTimeout = 2 * time.Second

// noMaintNotifications keeps clients from asking for a feature that only some
// servers have.
func noMaintNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}
