package tiered

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
)

// Keys may be credentials, so neither the log nor the errors, which programs log, contain a key. They name the
// rule and, if the key is stored in Redis as a hash, that hash.
func TestKeysAreNeitherLoggedNorInErrors(t *testing.T) {
	server := redistest.Start(t)
	client, ctx := server.Client(t), context.Background()
	var log bytes.Buffer
	l := newLimiterOn(t, client, "tl", Logger(slog.New(slog.NewTextHandler(&log, nil))), RememberDenials(0))
	r := newRule(t, l, "search", limit.PerMinute(300))
	short := "secret-token"
	long := strings.Repeat(short, 10)

	for _, key := range []string{long, short} {
		if err := client.Set(ctx, l.keys.Key("search", remote.NewUserKey(key)), "someone else's", 0).Err(); err != nil {
			t.Fatal(err)
		}
		l.log.mu.Lock()
		clear(l.log.seen) // otherwise the second line would be left out
		l.log.mu.Unlock()
		if d := mustAllow(t, r, key, 1); d.Tier != limit.TierFallback {
			t.Fatalf("%+v", d)
		}
	}
	_, err := l.AllowAll(ctx, Request{Rule: r, Key: short, Cost: 1}, Request{Rule: r, Key: "other", Cost: 1}, Request{Rule: r, Key: short, Cost: 1})
	if !errors.Is(err, limit.ErrInvalidRule) || !strings.Contains(err.Error(), `requests 1 and 3 have the same rule, "search"`) {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l.log.flush(time.Minute) // Close waits less for the logger than a busy machine may take
	told := log.String()
	if !strings.Contains(told, `rule \"search\"`) || !strings.Contains(told, string(remote.NewUserKey(long))) {
		t.Errorf("neither rule nor hash is logged: %s", told)
	}
	told += err.Error()

	// If a server does not know a command, its error quotes the command's arguments.
	without := []string{"--rename-command", "EVALSHA", "", "--rename-command", "EVAL", ""}
	if redistest.HasFunctions(t) {
		without = append(without, "--rename-command", "FCALL", "")
	}
	lacking := redistest.Start(t, without...)
	script := remote.NewScript(lacking.Client(t))
	encoded, err := remote.NewRule(limit.PerMinute(300), limit.GCRA())
	if err != nil {
		t.Fatal(err)
	}
	entry := remote.Entry{Key: short, Rule: encoded, Cost: 1}
	_, err = script.Run(ctx, []remote.Entry{entry}, 0)
	if err == nil || remote.KindOf(err) != remote.Protocol {
		t.Errorf("a server without scripts: %v", err)
	} else {
		told += err.Error()
	}
	if strings.Contains(told, short) {
		t.Errorf("a key is told: %s", told)
	}
}
