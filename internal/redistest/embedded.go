package redistest

import (
	"strconv"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Embedded returns a client of a miniredis, an imitation of Redis inside the test process, together with the
// imitation itself, whose clock the test can set. It can show that something works without a server, but not how
// fast. On a 32-bit platform, which miniredis does not support, the test is skipped.
func Embedded(tb testing.TB, change ...func(*redis.Options)) (*redis.Client, *miniredis.Miniredis) {
	tb.Helper()
	if strconv.IntSize < 64 {
		tb.Skip("miniredis needs a 64-bit platform")
	}
	server := miniredis.RunT(tb)
	client := newClient(server.Addr(), change...)
	tb.Cleanup(func() { _ = client.Close() })
	return client, server
}
