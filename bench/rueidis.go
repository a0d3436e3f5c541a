package main

import (
	"context"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislimiter"
)

// openRueidis opens rueidislimiter. It has fixed windows with two keys per user, on the client's clock. Its client
// pipelines concurrent commands, on four connections by default, and there is no pool to size.
func openRueidis(_ context.Context, e environment, w *workload) (*subject, error) {
	o, err := clientOptions(e)
	if err != nil {
		return nil, err
	}
	addrs := e.nodes
	if addrs == nil {
		addrs = []string{o.Addr}
	}
	var client rueidis.Client // the limiter cannot close it
	limiter, err := rueidislimiter.NewRateLimiter(rueidislimiter.RateLimiterOption{
		ClientBuilder: func(option rueidis.ClientOption) (_ rueidis.Client, err error) {
			client, err = rueidis.NewClient(option)
			return client, err
		},
		ClientOption: rueidis.ClientOption{
			InitAddress:   addrs,
			Username:      o.Username,
			Password:      o.Password,
			SelectDB:      o.DB,
			TLSConfig:     o.TLSConfig,
			ClientSetInfo: rueidis.DisableClientSetInfo,
		},
		Limit:  int(w.window.Quota()),
		Window: w.window.Window(),
	})
	if err != nil {
		return nil, err
	}
	call := func(ctx context.Context, key string) (outcome, error) {
		result, err := limiter.Allow(ctx, key)
		if err != nil {
			return failed, err
		}
		return verdict(result.Allowed), nil
	}
	s := overRedis(call, func() error { client.Close(); return nil })
	s.use = func(ctx context.Context, key string, units int) error {
		_, err := limiter.AllowN(ctx, key, int64(units))
		return err
	}
	return s, nil
}
