package main

import (
	"context"
	"errors"

	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
)

// openThrottled opens throttled, in which the client computes GCRA. It reads the state, and swaps it in a second trip
// if it has not changed. If another client has changed the state, it tries again, up to ten times, and then fails.
func openThrottled(_ context.Context, e environment, w *workload) (*subject, error) {
	client, err := newClient(e)
	if err != nil {
		return nil, err
	}
	store, err := goredisstore.NewCtx(client, "throttled:")
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	limiter, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate:  throttled.PerDuration(int(w.gcra.Quota()), w.gcra.Window()),
		MaxBurst: int(w.gcra.Burst()) - 1, // the burst beyond the first request
	})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	call := func(ctx context.Context, key string) (outcome, error) {
		limited, _, err := limiter.RateLimitCtx(ctx, key, 1)
		if err != nil {
			return failed, err
		}
		return verdict(!limited), nil
	}
	s := overRedis(call, client.Close)
	s.use = func(ctx context.Context, key string, units int) error {
		_, _, err := limiter.RateLimitCtx(ctx, key, units)
		return err
	}
	// TIME and GET are one pipeline. GET is not listed because the script calls it too.
	s.sends = []string{"time", "eval", "setnx", "expire"}
	return s, nil
}
