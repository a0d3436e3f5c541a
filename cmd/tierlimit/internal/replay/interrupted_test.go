package replay

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/trace"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// A replay that is interrupted while Redis hangs does not wait for Redis at every step of its end, and says which keys
// it leaves behind.
func TestInterruptedWhileRedisHangs(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	events := make([]trace.Event, 600)
	for i := range events {
		events[i] = trace.Event{At: int64(i), Key: "a", Cost: 1}
	}
	tr := trace.Of(events...)
	ctx, interrupt := context.WithCancel(context.Background())
	var began time.Time
	config := Config{Trace: tr, Limit: limit.PerMinute(1000), Instances: 3,
		Client: func() *redis.Client {
			return server.Client(t, func(o *redis.Options) { o.ReadTimeout, o.ContextTimeoutEnabled = Patience, true })
		},
		Progress: func(int) {
			server.Pause()
			began = time.Now()
			interrupt()
		},
	}
	_, err := Run(ctx, config, limit.SlidingLog(), Exact(tr, config.Limit, nil))
	if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "the keys (tierlimit-replay-") || took > Patience/2 {
		t.Errorf("after %v: %v", took, err)
	}
}
