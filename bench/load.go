package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// load is the result of a number of callers on a subject.
type load struct {
	took     time.Duration // until the last call returned
	latency  histogram     // of calls
	calls    [outcomes]uint64
	firstErr error
}

// decided returns how many calls led to a decision.
func (l *load) decided() uint64 { return l.calls[allowed] + l.calls[denied] + l.calls[degraded] }

// drive has callers call the subject for a time. Each caller calls again as soon as its last call has returned. drive
// stops early when ctx ends. If ready is not nil, it is called when everything is prepared, before the first call.
func drive(ctx context.Context, s *subject, w *workload, callers int, span time.Duration, ready func() error) (*load, error) {
	var stop atomic.Bool
	unwatch := context.AfterFunc(ctx, func() { stop.Store(true) })
	defer unwatch()

	parts := make([]load, callers)
	start := make(chan struct{})
	var running sync.WaitGroup
	for i := range parts {
		running.Go(func() {
			ctx, cancel := callerContext(ctx)
			defer cancel()
			pick := w.picker(i)
			<-start
			parts[i].work(ctx, s, s.decides[i%len(s.decides)], pick, &stop)
		})
	}
	var err error
	if ready != nil {
		if err = ready(); err != nil {
			stop.Store(true)
		}
	}
	started := time.Now()
	timer := time.AfterFunc(span, func() { stop.Store(true) })
	defer timer.Stop()
	close(start)
	running.Wait()
	return sum(parts, time.Since(started)), err
}

// callerContext returns a separate context with a deadline for each caller, as a server gives each request one.
// Callers that share one context contend for its lock. No measurement lasts as long as the deadline.
func callerContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, time.Hour)
}

func (l *load) work(ctx context.Context, s *subject, d decide, pick func() string, stop *atomic.Bool) {
	for !stop.Load() {
		// The timed call comes last, because a caller's first call is not a fair sample.
		for range s.timeEvery - 1 {
			l.call(ctx, d, pick())
		}
		started := time.Now()
		l.call(ctx, d, pick())
		l.latency.add(time.Since(started))
		if s.timeEvery > 1 {
			runtime.Gosched() // otherwise a few callers would keep all cores until the end
		}
	}
}

func (l *load) call(ctx context.Context, d decide, key string) {
	o, err := d(ctx, key)
	l.calls[o]++
	if err != nil && l.firstErr == nil {
		l.firstErr = err
	}
}

func sum(parts []load, took time.Duration) *load {
	whole := &load{took: took}
	for i := range parts {
		whole.add(&parts[i])
	}
	return whole
}

func (l *load) add(other *load) {
	l.latency.merge(&other.latency)
	for o, n := range other.calls {
		l.calls[o] += n
	}
	if l.firstErr == nil {
		l.firstErr = other.firstErr
	}
}

// eachKey calls d once with each of the keys, from many goroutines.
func eachKey(ctx context.Context, s *subject, d decide, keys []string) error {
	const callers = 128
	var (
		next    atomic.Int64
		running sync.WaitGroup
		parts   [callers]load
	)
	for i := range parts {
		running.Go(func() {
			ctx, cancel := callerContext(ctx)
			defer cancel()
			for ctx.Err() == nil {
				k := next.Add(1) - 1
				if k >= int64(len(keys)) {
					return
				}
				parts[i].call(ctx, d, keys[k])
			}
		})
	}
	running.Wait()
	for i := range parts {
		if err := parts[i].firstErr; err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return ctx.Err()
}
