package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// driver has callers call a subject for a while, as drive does.
type driver func(ctx context.Context, s *subject, w *workload, callers int, span time.Duration, ready func() error) (*load, error)

// burstRate is how many calls a second come in bursts, on the average.
const burstRate = 20_000

// driveBursts makes calls in bursts of so many at the same moment, whether answers come or not.
func driveBursts(ctx context.Context, s *subject, w *workload, callers int, span time.Duration, ready func() error) (*load, error) {
	pause := time.Duration(callers) * time.Second / burstRate
	return driveApart(ctx, s, w, callers, func() time.Duration { return pause }, span, ready)
}

// driveApart makes calls that do not wait for each other: so many together, and after each pause again.
func driveApart(ctx context.Context, s *subject, w *workload, together int, pause func() time.Duration, span time.Duration, ready func() error) (*load, error) {
	if ready != nil {
		if err := ready(); err != nil {
			return nil, err
		}
	}
	var mu sync.Mutex // guards whole
	whole := &load{}
	var running sync.WaitGroup
	pick, started := w.picker(0), time.Now()
	for at := time.Duration(0); at < span && ctx.Err() == nil; at += pause() {
		time.Sleep(time.Until(started.Add(at)))
		for range together {
			key, came := pick(), time.Now()
			running.Go(func() {
				ctx, cancel := callerContext(ctx)
				defer cancel()
				var one load
				one.call(ctx, s.decides[0], key)
				took := time.Since(came)
				mu.Lock()
				defer mu.Unlock()
				whole.add(&one)
				whole.latency.add(took)
			})
		}
	}
	running.Wait()
	whole.took = time.Since(started)
	return whole, nil
}

// quietKeys are asked for by one caller each beside those of a hot key, quietPause after each answer.
const (
	quietKeys  = 100
	quietPause = 10 * time.Millisecond
)

// driveBesideHotKey has callers ask for one key, and others for a key each. The load is that of
// the others.
func driveBesideHotKey(ctx context.Context, s *subject, w *workload, callers int, span time.Duration, ready func() error) (*load, error) {
	var stop atomic.Bool
	defer stop.Store(true)
	parts := make([]load, quietKeys)
	var hot, quiet sync.WaitGroup
	defer hot.Wait()
	for range callers {
		hot.Go(func() {
			ctx, cancel := callerContext(ctx)
			defer cancel()
			for !stop.Load() {
				_, _ = s.decides[0](ctx, w.keys[0])
			}
		})
	}
	if ready != nil {
		if err := ready(); err != nil {
			stop.Store(true)
			return nil, err
		}
	}
	started := time.Now()
	for i := range parts {
		quiet.Go(func() {
			ctx, cancel := callerContext(ctx)
			defer cancel()
			for key := fmt.Sprintf("%s:quiet%d", w.keys[0], i); time.Since(started) < span; time.Sleep(quietPause) {
				asked := time.Now()
				parts[i].call(ctx, s.decides[0], key)
				parts[i].latency.add(time.Since(asked))
			}
		})
	}
	quiet.Wait()
	stop.Store(true)
	return sum(parts, time.Since(started)), ctx.Err()
}
