package main

import (
	"context"

	"golang.org/x/time/rate"

	"github.com/tierlimit/tierlimit/limit"
)

// openAllowedInProcess opens golang.org/x/time/rate: a token bucket per key, which limits one process and not a
// fleet.
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

// openXTimeRate makes a limiter for each key, in a map that is not changed afterwards. Keys share no lock, which a
// growing map could not avoid as cheaply.
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
