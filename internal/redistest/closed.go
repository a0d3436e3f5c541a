package redistest

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

// KillIdle puts n connections into a client's pool, some of which may be closed already. Then it has the server
// close all connections except admin's.
func KillIdle(t testing.TB, client, admin *redis.Client, n int) {
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
	if err := admin.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
		t.Fatal(err)
	}
}
