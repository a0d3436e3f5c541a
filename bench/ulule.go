package main

import (
	"context"
	"errors"

	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/redis"
)

// openUlule opens ulule/limiter. It has fixed windows, each of which begins with a key's first request.
func openUlule(_ context.Context, e environment, w *workload) (*subject, error) {
	client, err := newClient(e)
	if err != nil {
		return nil, err
	}
	store, err := redis.NewStore(client)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	l := limiter.New(store, limiter.Rate{Period: w.window.Window(), Limit: w.window.Quota()})
	call := func(ctx context.Context, key string) (outcome, error) {
		result, err := l.Get(ctx, key)
		if err != nil {
			return failed, err
		}
		return verdict(!result.Reached), nil
	}
	s := overRedis(call, client.Close)
	s.use = func(ctx context.Context, key string, units int) error {
		_, err := l.Increment(ctx, key, int64(units))
		return err
	}
	return s, nil
}
