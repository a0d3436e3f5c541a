package tiered

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// LogOfRedis sends the lines of go-redis to a logger, and combines similar lines into one.
func TestLogOfRedis(t *testing.T) {
	t.Cleanup(logging.Disable) // restores the setting of redistest.Main
	var log lockedBuffer
	quiet := newQuietLog(slog.New(slog.NewJSONHandler(&log, nil)))
	sendLogOfRedis(quiet)
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "mymaster", SentinelAddrs: []string{"127.0.0.1:1"}, MaxRetries: -1, DialerRetries: 1})
	defer client.Close()
	for range 5 {
		if err := client.Ping(context.Background()).Err(); err == nil {
			t.Fatal("there is a Sentinel at port 1")
		}
	}
	quiet.flush(time.Minute)
	text := log.String()
	if !strings.Contains(text, `"msg":"tierlimit: the Redis client reports a problem","message":"sentinel: `) || strings.Contains(text, "\nredis: ") {
		t.Errorf("logged:\n%s", text)
	}
	kinds := make(map[string]int)
	for line := range strings.Lines(text) {
		_, message, _ := strings.Cut(line, `"message":"`)
		kinds[message[:min(30, len(message))]]++
	}
	for kind, n := range kinds {
		if n != 1 {
			t.Errorf("%d lines like %q:\n%s", n, kind, text)
		}
	}
	LogOfRedis(nil)
	before := log.String()
	_ = client.Ping(context.Background())
	quiet.flush(time.Minute)
	if log.String() != before {
		t.Error("a nil logger logs to the last one")
	}
}

// A client of Sentinel that works reports no problem.
func TestLogOfRedisThatWorks(t *testing.T) {
	sentinel := redistest.StartSentinel(t)
	t.Cleanup(logging.Disable)
	var log lockedBuffer
	quiet := newQuietLog(slog.New(slog.NewTextHandler(&log, nil)))
	sendLogOfRedis(quiet)
	client := sentinel.Client(t)
	if err := client.Ping(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	quiet.flush(time.Minute)
	if text := log.String(); !strings.Contains(text, "level=INFO") || strings.Contains(text, "level=WARN") {
		t.Errorf("logged:\n%s", text)
	}
}
