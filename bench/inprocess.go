package main

import (
	"context"
	"fmt"
	"time"

	"github.com/dgraph-io/ristretto/v2"

	"github.com/tierlimit/tierlimit/limit"
)

// sampleEvery is the timeEvery of what happens in process.
const sampleEvery = 1024

// limitOfOne is used up by the first request.
var limitOfOne = limit.PerDay(1)

// openDenial denies what it remembers to be denied. Once a second the memory ends
// and Redis is asked again, which is part of what a denial costs.
func openDenial(ctx context.Context, e environment, w *workload) (*subject, error) {
	s, err := openOurs(e, "tierlimit, remembered denial", w.log, limit.SlidingLog(), false)
	if err != nil {
		return nil, err
	}
	s.timeEvery, s.hasState = sampleEvery, false
	for _, key := range w.keys {
		if _, err := s.call(ctx, key); err != nil {
			return nil, fmt.Errorf("using up the limit: %w", err)
		}
	}
	return s, nil
}

const nameRistretto = "floor: ristretto Get + time.Now"

// openRistretto does the two things without which no denial with an end can be
// looked up in that cache.
func openRistretto(_ context.Context, _ environment, w *workload) (*subject, error) {
	type denial struct{ until time.Time }
	cache, err := ristretto.NewCache(&ristretto.Config[string, denial]{
		NumCounters:        1_000_000,
		MaxCost:            100_000,
		BufferItems:        64,
		IgnoreInternalCost: true,
	})
	if err != nil {
		return nil, err
	}
	for _, key := range w.keys {
		cache.Set(key, denial{time.Now().Add(time.Hour)}, 1)
	}
	cache.Wait()
	call := func(_ context.Context, key string) (outcome, error) {
		d, ok := cache.Get(key)
		return expect(ok && time.Now().Before(d.until)), nil
	}
	closeCache := func() error { cache.Close(); return nil }
	return &subject{name: nameRistretto, perCall: 1, timeEvery: sampleEvery, call: call, close: closeCache}, nil
}
