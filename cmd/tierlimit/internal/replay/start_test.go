package replay

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/trace"
	"github.com/tierlimit/tierlimit/internal/standin"
	"github.com/tierlimit/tierlimit/limit"
)

// On a busy machine, Redis may answer a limiter only after the first second. The replay continues in
// spite of that.
func TestAFirstConnectionThatTakesLong(t *testing.T) {
	server, err := standin.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	var dials atomic.Int32
	tr := trace.Of(trace.Event{At: 1, Key: "a", Cost: 1}, trace.Event{At: 2, Key: "a", Cost: 1})
	config := Config{Trace: tr, Limit: limit.PerMinute(1), Instances: 2, Client: func() *redis.Client {
		options := server.Options()
		dial := options.Dialer
		options.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
			if dials.Add(1) == 1 {
				time.Sleep(1500 * time.Millisecond)
			}
			return dial(ctx, network, address)
		}
		return redis.NewClient(options)
	}}
	result, err := Run(context.Background(), config, limit.SlidingLog(), Exact(tr, config.Limit, nil))
	if err != nil {
		t.Fatal(err)
	}
	if result.Allowed != 1 || result.Denied != 1 {
		t.Errorf("%d allowed and %d denied, want 1 and 1", result.Allowed, result.Denied)
	}
}
