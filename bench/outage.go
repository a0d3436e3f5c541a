package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/tierlimit/tierlimit/bench/internal/proxy"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// inOutage asks for one hot key that is allowed without Redis. The ledger has room for all requests of a run.
func inOutage(run string) workload {
	w := hotKey(run + ":outage")
	w.mostly = degraded
	return w
}

// openOutage opens a limiter and cuts it off from Redis, so that it decides by its own ledger.
func openOutage(ctx context.Context, e environment, w *workload) (*subject, error) {
	o, err := clientOptions(e)
	if err != nil {
		return nil, err
	}
	p, err := proxy.Start(o.Addr)
	if err != nil {
		return nil, err
	}
	defer p.Stop()
	if e.url, err = onHost(e.url, p.Addr()); err != nil {
		return nil, err
	}
	limiter, err := newLimiter(e, tiered.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, err
	}
	rule, err := addRule(limiter, w.window, limit.GCRA())
	if err != nil {
		return nil, err
	}
	if limiter.Degraded() {
		return nil, errors.Join(errors.New("no Redis behind the proxy"), limiter.Close())
	}
	p.Stop()
	decide := decideBy(rule)
	for until := time.Now().Add(10 * time.Second); !limiter.Degraded(); {
		if time.Now().After(until) {
			return nil, errors.Join(errors.New("the breaker stays closed without Redis"), limiter.Close())
		}
		_, _ = decide(ctx, w.keys[0]) // failed trips open the breaker
	}
	return inProcess(decide, limiter.Close), nil
}
