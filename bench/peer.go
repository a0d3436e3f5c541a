package main

import (
	"context"

	"github.com/go-redis/redis_rate/v10"
)

// openPeer opens redis_rate, the limiter that go-redis's own organisation keeps:
// GCRA, one EVALSHA per decision.
func openPeer(_ context.Context, e environment, w *workload) (*subject, error) {
	client, err := newClient(e.url, e.pool)
	if err != nil {
		return nil, err
	}
	limiter := redis_rate.NewLimiter(client)
	lim := redis_rate.Limit{Rate: int(w.gcra.Quota()), Burst: int(w.gcra.Burst()), Period: w.gcra.Window()}
	call := func(ctx context.Context, key string) (outcome, error) {
		result, err := limiter.Allow(ctx, key, lim)
		if err != nil {
			return failed, err
		}
		return expect(result.Allowed == 1), nil
	}
	return &subject{name: "redis_rate", perCall: 1, timeEvery: 1, hasState: true, call: call, close: client.Close}, nil
}
