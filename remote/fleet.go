package remote

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/lua"
)

// Fleet keeps this instance's membership of the fleet, and the fleet's size, by
// heartbeats in Redis on Redis's clock. It is safe for concurrent use.
type Fleet struct {
	client   redis.UniversalClient
	key      string
	instance string
	ttl      time.Duration
	source   string
	sha      string
	clocks   *clocks

	size  atomic.Int64
	heard atomic.Bool
}

// NewFleet returns the membership of instance, which must be unique. An instance
// not heard of for ttl no longer counts. assumed is the size taken until Redis
// has told the real one.
func NewFleet(batcher *Batcher, keys Keyspace, instance string, ttl time.Duration, assumed int) *Fleet {
	source := lua.Fleet()
	f := &Fleet{
		client:   batcher.script.client,
		key:      keys.fleetKey(),
		instance: instance,
		ttl:      ttl,
		source:   source,
		sha:      redis.NewScript(source).Hash(),
		clocks:   batcher.clocks,
	}
	f.size.Store(int64(assumed))
	return f
}

// Size is the number of instances: the last one heard, or the assumed one. It is
// at least 1.
func (f *Fleet) Size() int { return int(f.size.Load()) }

// Heard reports whether Redis has told the size yet.
func (f *Fleet) Heard() bool { return f.heard.Load() }

// Beat renews the membership and learns the fleet's size and Redis's clock.
// Needing all that a decision needs of Redis, it is also the limiter's ping.
func (f *Fleet) Beat(ctx context.Context) error {
	sent := localTime()
	clock, size, err := f.run(ctx, f.ttl)
	if err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	f.clocks.observe(f.key, clock, sent, localTime())
	f.size.Store(max(1, size))
	f.heard.Store(true)
	return nil
}

// Leave ends the membership at once, instead of after the ttl.
func (f *Fleet) Leave(ctx context.Context) error {
	if _, _, err := f.run(ctx, 0); err != nil {
		return fmt.Errorf("leaving the fleet: %w", err)
	}
	return nil
}

func (f *Fleet) run(ctx context.Context, ttl time.Duration) (clock, size int64, err error) {
	args := []any{"evalsha", f.sha, 1, f.key, f.instance, ttl.Microseconds()}
	cmd := chargeCmd{redis.NewIntSliceCmd(ctx, args...)} // a lost beat is made up for by the next one
	_ = f.client.Process(ctx, cmd)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		// Beats are rare: EVAL loads the script on the node that needs it.
		args[0], args[1] = "eval", f.source
		cmd = chargeCmd{redis.NewIntSliceCmd(ctx, args...)}
		_ = f.client.Process(ctx, cmd)
	}
	values, err := cmd.Result()
	if err != nil {
		reloadCluster(ctx, f.client)
		return 0, 0, err
	}
	if len(values) != 2 {
		return 0, 0, fmt.Errorf("%w: %d integers", errReply, len(values))
	}
	return values[0], values[1], nil
}
