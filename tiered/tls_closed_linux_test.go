//go:build !386

package tiered

import (
	"crypto/tls"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Law 3: decisions and heartbeats use only connections that the server has not closed, also with TLS, and are
// charged once. Redis closes connections that are idle (timeout) or that somebody kills, and all connections when
// it is restarted.
func TestLaw3ConnectionsWithTLSThatTheServerHasClosed(t *testing.T) {
	t.Parallel()
	for name, protocol := range map[string]int{"RESP2": 2, "RESP3": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.StartTLS(t)
			l, err := Open(&redis.UniversalOptions{
				Addrs: []string{server.TLSAddr}, Protocol: protocol, TLSConfig: &tls.Config{RootCAs: server.CA},
			}, Deadline(5*time.Second), Logger(slog.New(slog.DiscardHandler)), KeepLogOfRedis())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			r := newRule(t, l, "r", limit.PerHour(1000))
			client, admin, heartbeats := l.client.(*redis.Client), server.Server.Client(t), new(redistest.Gate)
			client.AddHook(heartbeats)
			for n := range int64(5) {
				redistest.KillIdle(t, client, admin, 16, heartbeats)
				if d := mustAllow(t, r, "k", 1); d.Tier != limit.TierRedis || d.Remaining != 1000-1-n {
					t.Errorf("%+v", d)
				}
				if err := l.shard.Heartbeat(l.config.deadline); err != nil {
					t.Error(err)
				}
			}
			if s := l.Stats(); s.Outages != 0 || s.Trips.Errors["unreachable"] != 0 {
				t.Errorf("%d outages, errors %v", s.Outages, s.Trips.Errors)
			}
		})
	}
}
