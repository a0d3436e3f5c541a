package standin_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/conformance"
	"github.com/tierlimit/tierlimit/internal/standin"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

func start(t *testing.T) *redis.Client {
	t.Helper()
	server, err := standin.Start()
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(server.Options())
	t.Cleanup(func() { _ = client.Close(); server.Close() })
	return client
}

// The script decides as the models do, also in an interpreter that is reused.
func TestLaws1And5And10Conformance(t *testing.T) {
	t.Run("standin", func(t *testing.T) { conformance.Test(t, remote.NewScript(start(t))) })
}

// Concurrent callers share one interpreter: of a limit of 100, exactly 100 units are granted.
func TestScriptsRunOneAfterAnother(t *testing.T) {
	client := start(t)
	rule, err := remote.NewRule(limit.PerHour(100), limit.SlidingLog())
	if err != nil {
		t.Fatal(err)
	}
	script, now := remote.NewScript(client), time.Now().UnixMicro()
	var mu sync.Mutex
	var callers sync.WaitGroup
	granted := 0
	for range 8 {
		callers.Go(func() {
			for range 25 {
				replies, err := script.Run(context.Background(), []remote.Entry{{Key: "k", Rule: rule, Cost: 1}}, now)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if replies[0].Status == remote.Allowed {
					granted++
				}
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	if granted != 100 {
		t.Errorf("%d granted of 100", granted)
	}
}

// A script that fails returns an error, and the next one runs.
func TestAFailedScriptIsAnError(t *testing.T) {
	client, ctx := start(t), context.Background()
	sha := redis.NewScript(lua.DecideScript()).Hash()
	if err := client.EvalSha(ctx, sha, []string{"k"}, "short").Err(); err == nil || !strings.HasPrefix(err.Error(), "ERR ") {
		t.Errorf("%v", err)
	}
	rule, err := remote.NewRule(limit.PerHour(100), limit.GCRA())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := remote.NewScript(client).Run(ctx, []remote.Entry{{Key: "k", Rule: rule, Cost: 1}}, 0); err != nil {
		t.Error(err)
	}
}

// Keys expire by themselves. Otherwise a process that runs for long would fill its memory.
func TestKeysExpire(t *testing.T) {
	client, ctx := start(t), context.Background()
	for i := range 3 {
		client.Set(ctx, fmt.Sprint(i), "x", time.Duration(1+i)*10*time.Millisecond)
	}
	client.Set(ctx, "later", "x", time.Hour)
	for end := time.Now().Add(time.Minute); client.DBSize(ctx).Val() != 1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d keys are left", client.DBSize(ctx).Val())
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	server, err := standin.Start()
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(server.Options())
	defer client.Close()
	rule, err := remote.NewRule(limit.PerMinute(10), limit.SlidingLog())
	if err != nil {
		b.Fatal(err)
	}
	script := remote.NewScript(client)
	for i := range b.N {
		if _, err := script.Run(b.Context(), []remote.Entry{{Key: fmt.Sprint(i % 1000), Rule: rule, Cost: 1}}, int64(i+1)*1_000_000); err != nil {
			b.Fatal(err)
		}
	}
}
