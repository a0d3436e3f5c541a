package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

func openGCRA(_ context.Context, e environment, w *workload) (*subject, error) {
	return openOurs(e, w.gcra, limit.GCRA())
}

func openLog(_ context.Context, e environment, w *workload) (*subject, error) {
	return openOurs(e, w.log, limit.SlidingLog())
}

func openCounter(buckets int) opener {
	return func(_ context.Context, e environment, w *workload) (*subject, error) {
		return openOurs(e, w.window, limit.SlidingCounter(buckets, limit.Strict))
	}
}

// openOurs opens a limiter with a rule.
func openOurs(e environment, lim limit.Limit, a limit.Algorithm, options ...tiered.RuleOption) (*subject, error) {
	limiter, opened, err := openLimiter(e)
	if err != nil {
		return nil, err
	}
	rule, err := addRule(limiter, lim, a, options...)
	if err != nil {
		return nil, err
	}
	s := overRedis(decideBy(rule), limiter.Close)
	s.opened = opened
	s.use = func(ctx context.Context, key string, units int) error {
		_, err := rule.AllowN(ctx, key, int64(units))
		return err
	}
	return s, nil
}

// openLimiter opens a limiter as its documentation recommends, except for the deadline. With some algorithms,
// hundreds of callers on the server's machine queue for longer than 50 ms. The benchmark measures how long Redis
// takes then, and not the outage mode.
func openLimiter(e environment) (limiter *tiered.Limiter, opened func() int, err error) {
	warnings := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	var outages atomic.Int64
	limiter, err = newLimiter(e, tiered.Deadline(time.Second), tiered.Logger(warnings), countOutages(&outages))
	return limiter, func() int { return int(outages.Load()) }, err
}

// countOutages counts how often a limiter's breaker opens.
func countOutages(opened *atomic.Int64) tiered.Option {
	return tiered.OnStateChange(func(s tiered.State) {
		if s == tiered.Outage {
			opened.Add(1)
		}
	})
}

// openDefault opens a limiter with the default deadline of 50 ms. Its log of outages is discarded, because they are
// counted.
func openDefault(a limit.Algorithm, options ...tiered.Option) opener {
	return func(_ context.Context, e environment, w *workload) (*subject, error) {
		lim := w.window
		switch a {
		case limit.GCRA():
			lim = w.gcra
		case limit.SlidingLog():
			lim = w.log
		}
		var opened atomic.Int64
		limiter, err := newLimiter(e, append(options, tiered.Logger(slog.New(slog.DiscardHandler)), countOutages(&opened))...)
		if err != nil {
			return nil, err
		}
		rule, err := addRule(limiter, lim, a)
		if err != nil {
			return nil, err
		}
		s := overRedis(decideBy(rule), func() error {
			_ = limiter.Close() // the error is that a busy Redis did not answer in time
			return nil
		})
		s.opened = func() int { return int(opened.Load()) }
		return s, nil
	}
}

func newLimiter(e environment, options ...tiered.Option) (*tiered.Limiter, error) {
	o, err := universalOptions(e)
	if err != nil {
		return nil, err
	}
	return tiered.Open(o, append(options, tiered.Prefix(cmp.Or(e.fleet, "bench")))...)
}

// addRule makes a rule. If that fails, it closes the limiter. Each algorithm has its own keys, under names of the
// same length, because converting another algorithm's counts takes time.
func addRule(limiter *tiered.Limiter, lim limit.Limit, a limit.Algorithm, options ...tiered.RuleOption) (*tiered.Rule, error) {
	name := a.Name()[len(a.Name())-4:]
	rule, err := limiter.Rule(name, lim, append(options, tiered.Use(a))...)
	if err != nil {
		return nil, errors.Join(err, limiter.Close())
	}
	return rule, nil
}

func decideBy(rule *tiered.Rule) decide {
	return func(ctx context.Context, key string) (outcome, error) {
		d, err := rule.Allow(ctx, key)
		switch {
		case err != nil:
			return failed, err
		case d.Degraded():
			return degraded, nil
		}
		return verdict(d.Allowed), nil
	}
}

// universalOptions returns the options of every client in the form that tiered.Open takes.
func universalOptions(e environment) (*redis.UniversalOptions, error) {
	o, err := clientOptions(e)
	if err != nil {
		return nil, err
	}
	addrs := e.nodes
	if addrs == nil {
		addrs = []string{o.Addr}
	}
	return &redis.UniversalOptions{
		Addrs:                    addrs,
		DB:                       o.DB,
		Username:                 o.Username,
		Password:                 o.Password,
		TLSConfig:                o.TLSConfig,
		PoolSize:                 o.PoolSize,
		DisableIdentity:          o.DisableIdentity,
		MaintNotificationsConfig: o.MaintNotificationsConfig,
	}, nil
}
