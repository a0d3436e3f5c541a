package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/ristretto/v2"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// openDenial denies from memory. Once a second, a denial is forgotten and Redis is asked again, which is part of what
// a denial costs.
func openDenial(ctx context.Context, e environment, w *workload) (*subject, error) {
	s, err := openOurs(e, w.log, limit.SlidingLog())
	if err != nil {
		return nil, err
	}
	s.timeEvery = sampleEvery
	if !w.primed {
		for _, key := range w.keys {
			if _, err := s.decides[0](ctx, key); err != nil {
				return nil, fmt.Errorf("using up the limit: %w", err)
			}
		}
	}
	return s, nil
}

// openLease decides from leases. It asks Redis for what they do not cover, which is part of what such a decision
// costs.
func openLease(_ context.Context, e environment, w *workload) (*subject, error) {
	s, err := openOurs(e, w.gcra, limit.GCRA(), tiered.Lease(10))
	if err != nil {
		return nil, err
	}
	s.timeEvery = sampleEvery
	return s, nil
}

// openRistretto does the two things that any look-up of a temporary denial in that cache needs: Get and time.Now.
func openRistretto(_ context.Context, _ environment, w *workload) (*subject, error) {
	type denial struct{ until time.Time }
	cache, err := ristretto.NewCache(&ristretto.Config[string, denial]{
		NumCounters:        10 * int64(len(w.keys)),
		MaxCost:            2 * int64(len(w.keys)), // nothing is evicted
		BufferItems:        64,
		IgnoreInternalCost: true,
	})
	if err != nil {
		return nil, err
	}
	for i, key := range w.keys {
		cache.Set(key, denial{time.Now().Add(time.Hour)}, 1)
		if i%10_000 == 0 {
			cache.Wait() // the cache drops entries that come too fast
		}
	}
	cache.Wait()
	call := func(_ context.Context, key string) (outcome, error) {
		d, ok := cache.Get(key)
		if !ok || time.Now().After(d.until) {
			return failed, nil
		}
		return w.mostly, nil
	}
	s := inProcess(call, func() error { cache.Close(); return nil })
	s.stateless = true
	return s, nil
}

// openAtomic increments an atomic counter and does nothing else.
func openAtomic(_ context.Context, _ environment, w *workload) (*subject, error) {
	var count atomic.Int64
	call := func(context.Context, string) (outcome, error) {
		count.Add(1)
		return w.mostly, nil
	}
	s := inProcess(call, func() error { return nil })
	s.stateless = true
	return s, nil
}
