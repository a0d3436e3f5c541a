package tiered

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Blocking commands of the program can hold all connections of a client that it shares with the limiter. Redis counts
// as lost then, although nothing is wrong with it, and the log says what is.
func TestOutageSaysThatThePoolIsInUse(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 3})
	t.Cleanup(func() { client.Close() })
	var log lockedBuffer
	l := newLimiterOn(t, client, "tl", Deadline(50*time.Millisecond), Logger(slog.New(slog.NewTextHandler(&log, nil))))
	r := newRule(t, l, "r", limit.PerMinute(1000))
	mustAllow(t, r, "k", 1)
	if strings.Contains(log.String(), "in use") {
		t.Fatal(log.String())
	}
	for range 3 {
		go client.BLPop(t.Context(), 20*time.Second, "queue")
	}
	redistest.Eventually(t, "Redis counts as lost", func() bool { mustAllow(t, r, "k", 1); return l.State() == Outage })
	redistest.Eventually(t, "the log says why", func() bool {
		return strings.Contains(log.String(), "all 3 connections of the client's pool are in use")
	})
}
