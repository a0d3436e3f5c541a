package tiered

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// changingPassword is a StreamingCredentialsProvider, such as those for managed identities.
type changingPassword struct {
	mu        sync.Mutex
	password  string
	listeners map[auth.CredentialsListener]bool
}

func (c *changingPassword) Subscribe(l auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners[l] = true
	return auth.NewBasicCredentials("default", c.password), func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.listeners, l)
		return nil
	}, nil
}

// change changes the password, and tells all connections.
func (c *changingPassword) change(password string) {
	c.mu.Lock()
	c.password = password
	var listeners []auth.CredentialsListener
	for l := range c.listeners {
		listeners = append(listeners, l)
	}
	c.mu.Unlock()
	for _, l := range listeners {
		l.OnNext(auth.NewBasicCredentials("default", password))
	}
}

// Clients with credentials that change work, on one node and on a Cluster. With such a client go-redis panics if a
// redis.Conn, by which the limiter keeps connections, has to dial.
func TestStreamingCredentials(t *testing.T) {
	t.Parallel()
	single, cluster := redistest.Start(t), redistest.StartCluster(t, 1)
	for name, c := range map[string]struct {
		server *redistest.Server
		start  func(auth.StreamingCredentialsProvider, ...Option) (*Limiter, error)
	}{
		"New": {single, func(p auth.StreamingCredentialsProvider, options ...Option) (*Limiter, error) {
			client := redis.NewClient(&redis.Options{Addr: single.Addr(), StreamingCredentialsProvider: p})
			t.Cleanup(func() { _ = client.Close() })
			return New(client, options...)
		}},
		"Open": {single, func(p auth.StreamingCredentialsProvider, options ...Option) (*Limiter, error) {
			return Open(&redis.UniversalOptions{Addrs: []string{single.Addr()}, StreamingCredentialsProvider: p}, append(options, KeepLogOfRedis())...)
		}},
		"a Cluster": {cluster.Nodes()[0], func(p auth.StreamingCredentialsProvider, options ...Option) (*Limiter, error) {
			client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), StreamingCredentialsProvider: p})
			t.Cleanup(func() { _ = client.Close() })
			return New(client, options...)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			credentials := &changingPassword{password: "first", listeners: make(map[auth.CredentialsListener]bool)}
			admin := c.server.Client(t)
			set := func(password string) {
				t.Helper()
				if err := admin.ConfigSet(t.Context(), "requirepass", password).Err(); err != nil {
					t.Fatal(err)
				}
			}
			set("first")
			defer set("")
			l, err := c.start(credentials, Prefix(redistest.Prefix()), Deadline(5*time.Second), Logger(slog.New(slog.DiscardHandler)))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			r := newRule(t, l, "r", limit.PerHour(1_000_000))
			decides := func() bool { return mustAllow(t, r, "k", 1).Tier == limit.TierRedis }
			redistest.Eventually(t, "Redis decides", decides)

			set("second")
			credentials.change("second")
			redistest.Eventually(t, "Redis decides", decides)
			if err := admin.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
				t.Fatal(err)
			}
			redistest.Eventually(t, "Redis decides on connections with the new password", decides)
		})
	}
}
