package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

func openGCRA(_ context.Context, e environment, w *workload) (*subject, error) {
	return openOurs(e, "tierlimit, GCRA", w.gcra, limit.GCRA(), true)
}

func openLog(_ context.Context, e environment, w *workload) (*subject, error) {
	return openOurs(e, "tierlimit, sliding log", w.log, limit.SlidingLog(), true)
}

// openOurs opens a limiter as its documentation recommends, but for the deadline:
// hundreds of callers on one machine with the server queue for longer than 50 ms,
// and what is to be measured is how long Redis takes, not the outage mode.
func openOurs(e environment, name string, lim limit.Limit, a limit.Algorithm, allowed bool) (*subject, error) {
	o, err := universalOptions(e)
	if err != nil {
		return nil, err
	}
	warnings := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	limiter, err := tiered.Open(o, tiered.Prefix("bench"), tiered.Deadline(time.Second), tiered.Logger(warnings))
	if err != nil {
		return nil, err
	}
	rule, err := limiter.Rule(a.Name(), lim, tiered.Use(a))
	if err != nil {
		return nil, errors.Join(err, limiter.Close())
	}
	call := func(ctx context.Context, key string) (outcome, error) {
		d, err := rule.Allow(ctx, key)
		switch {
		case err != nil:
			return failed, err
		case d.Degraded():
			return degraded, nil
		}
		return expect(d.Allowed == allowed), nil
	}
	return &subject{name: name, perCall: 1, timeEvery: 1, hasState: true, call: call, close: limiter.Close}, nil
}

// universalOptions are the options of every client in the form that tiered.Open
// takes.
func universalOptions(e environment) (*redis.UniversalOptions, error) {
	o, err := clientOptions(e.url, e.pool)
	if err != nil {
		return nil, err
	}
	return &redis.UniversalOptions{
		Addrs:                    []string{o.Addr},
		DB:                       o.DB,
		Username:                 o.Username,
		Password:                 o.Password,
		TLSConfig:                o.TLSConfig,
		PoolSize:                 o.PoolSize,
		DisableIdentity:          o.DisableIdentity,
		MaintNotificationsConfig: o.MaintNotificationsConfig,
	}, nil
}
