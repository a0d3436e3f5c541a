package main

import (
	"context"
	"errors"

	"github.com/go-redis/redis_rate/v10"

	"github.com/tierlimit/tierlimit/limit"
)

// openRedisRate opens redis_rate, which is maintained in go-redis's own organization. It is GCRA with one EVALSHA per
// decision.
func openRedisRate(_ context.Context, e environment, w *workload) (*subject, error) {
	client, err := newAnyClient(e)
	if err != nil {
		return nil, err
	}
	return redisRate(redis_rate.NewLimiter(client), w, client.Close), nil
}

// openAutoPipeline opens redis_rate on a client that pipelines concurrent commands (go-redis 9.22 and later).
func openAutoPipeline(_ context.Context, e environment, w *workload) (*subject, error) {
	client, err := newClient(e)
	if err != nil {
		return nil, err
	}
	pipeline, err := client.AutoPipeline()
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	// Closing the client closes the pipeline.
	return redisRate(redis_rate.NewLimiter(pipeline), w, client.Close), nil
}

func redisRateLimit(l limit.Limit) redis_rate.Limit {
	return redis_rate.Limit{Rate: int(l.Quota()), Burst: int(l.Burst()), Period: l.Window()}
}

func redisRate(limiter *redis_rate.Limiter, w *workload, close func() error) *subject {
	lim := redisRateLimit(w.gcra)
	call := func(ctx context.Context, key string) (outcome, error) {
		result, err := limiter.Allow(ctx, key, lim)
		if err != nil {
			return failed, err
		}
		return verdict(result.Allowed == 1), nil
	}
	s := overRedis(call, close)
	s.use = func(ctx context.Context, key string, units int) error {
		_, err := limiter.AllowN(ctx, key, lim, units)
		return err
	}
	return s
}
