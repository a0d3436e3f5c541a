package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// load is what a number of callers got from a subject.
type load struct {
	took     time.Duration // until the last call had returned
	latency  histogram     // of calls
	calls    [outcomes]uint64
	firstErr error
}

func (l *load) total() (n uint64) {
	for _, count := range l.calls {
		n += count
	}
	return n
}

// drive has callers call the subject for a while, each as soon as its last call
// has returned. It stops early when ctx ends.
func drive(ctx context.Context, s *subject, w *workload, callers int, span time.Duration) *load {
	var stop atomic.Bool
	unwatch := context.AfterFunc(ctx, func() { stop.Store(true) })
	defer unwatch()

	parts := make([]load, callers)
	start := make(chan struct{})
	var running sync.WaitGroup
	for i := range parts {
		running.Go(func() {
			// As in a server, each caller has a context of its own.
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			pick := w.picker(i)
			<-start
			parts[i].work(ctx, s, pick, &stop)
		})
	}
	started := time.Now()
	timer := time.AfterFunc(span, func() { stop.Store(true) })
	defer timer.Stop()
	close(start)
	running.Wait()

	whole := &load{took: time.Since(started)}
	for i := range parts {
		whole.add(&parts[i])
	}
	return whole
}

func (l *load) work(ctx context.Context, s *subject, pick func() string, stop *atomic.Bool) {
	for !stop.Load() {
		// The timed call comes last: a caller's first call is no fair sample.
		for range s.timeEvery - 1 {
			l.call(ctx, s, pick())
		}
		started := time.Now()
		l.call(ctx, s, pick())
		l.latency.add(time.Since(started))
	}
}

func (l *load) call(ctx context.Context, s *subject, key string) {
	o, err := s.call(ctx, key)
	l.calls[o]++
	if err != nil && l.firstErr == nil {
		l.firstErr = err
	}
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

// useEachKeyOnce gives every key its state.
func useEachKeyOnce(ctx context.Context, s *subject, w *workload) error {
	const callers = 64
	var (
		next    atomic.Int64
		running sync.WaitGroup
		parts   [callers]load
	)
	for i := range parts {
		running.Go(func() {
			for ctx.Err() == nil {
				k := next.Add(1) - 1
				if k >= int64(len(w.keys)) {
					return
				}
				parts[i].call(ctx, s, w.keys[k])
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
