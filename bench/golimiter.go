package main

import (
	"context"
	"runtime"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/sethvargo/go-redisstore"
)

// openGoLimiter opens sethvargo/go-limiter with its Redis store: a fixed window in a hash, through redigo. The
// store's own pool would keep no idle connections and allow at most 100. This pool is as large as the others' pools
// and makes callers wait, as theirs do.
func openGoLimiter(_ context.Context, e environment, w *workload) (*subject, error) {
	size := e.pool
	if size == 0 {
		size = 10 * runtime.GOMAXPROCS(0) // go-redis's default
	}
	pool := &redis.Pool{
		MaxActive:   size,
		MaxIdle:     size,
		IdleTimeout: 5 * time.Minute,
		Wait:        true,
		Dial:        func() (redis.Conn, error) { return redis.DialURL(e.url) },
	}
	store, err := redisstore.NewWithPool(&redisstore.Config{
		Tokens:   uint64(w.window.Quota()),
		Interval: w.window.Window(),
	}, pool)
	if err != nil {
		return nil, err
	}
	call := func(ctx context.Context, key string) (outcome, error) {
		_, _, _, ok, err := store.Take(ctx, key)
		if err != nil {
			return failed, err
		}
		return verdict(ok), nil
	}
	return overRedis(call, func() error { return store.Close(context.Background()) }), nil
}
