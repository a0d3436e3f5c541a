package main

import (
	"context"

	"golang.org/x/time/rate"

	"github.com/tierlimit/tierlimit/limit"
)

// openAllowedInProcess opens golang.org/x/time/rate, which limits one process and
// no fleet: a token bucket per key.
func openAllowedInProcess(_ context.Context, _ environment, w *workload) (*subject, error) {
	return openXTimeRate(w, w.gcra, int(w.gcra.Burst())), nil
}

// openDeniedInProcess uses up each key's only token.
func openDeniedInProcess(_ context.Context, _ environment, w *workload) (*subject, error) {
	s := openXTimeRate(w, limitOfOne, 1)
	for _, key := range w.keys {
		_, _ = s.decides[0](context.Background(), key) // allowed, without an error
	}
	return s, nil
}

// openXTimeRate makes a limiter of each key, in a map that is only read from then
// on: no lock is shared by keys, which no map that grows could do as cheaply.
func openXTimeRate(w *workload, lim limit.Limit, burst int) *subject {
	perSecond := rate.Limit(float64(lim.Quota()) / lim.Window().Seconds())
	limiters := make(map[string]*rate.Limiter, len(w.keys))
	for _, key := range w.keys {
		limiters[key] = rate.NewLimiter(perSecond, burst)
	}
	call := func(_ context.Context, key string) (outcome, error) {
		return verdict(limiters[key].Allow()), nil
	}
	s := inProcess(call, func() error { return nil })
	s.stateless = true
	return s
}
