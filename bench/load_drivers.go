package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// driver has callers call a subject for a time, as drive does.
type driver func(ctx context.Context, s *subject, w *workload, callers int, span time.Duration, ready func() error) (*load, error)

// burstRate is how many calls a second come in bursts, on average.
const burstRate = 20_000

// driveBursts makes bursts of simultaneous calls, one per caller, and does not wait for answers in between.
func driveBursts(ctx context.Context, s *subject, w *workload, callers int, span time.Duration, ready func() error) (*load, error) {
	pause := time.Duration(callers) * time.Second / burstRate
	return driveApart(ctx, s, w, callers, func() time.Duration { return pause }, span, ready)
}

// driveApart makes calls that do not wait for each other: together calls at a time, and again after each pause.
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

// Beside the hot key's callers, quietKeys callers ask for one key each, and pause for quietPause after each answer.
const (
	quietKeys  = 100
	quietPause = 10 * time.Millisecond
)

// driveBesideHotKey has callers ask for one hot key, and others for a quiet key each. It returns the load of the
// others.
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
