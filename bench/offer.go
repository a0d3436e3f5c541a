package main

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"
)

// deadline is the default deadline of tierlimit's decisions, and the deadline of each call when too many are made.
const deadline = 50 * time.Millisecond

// offered counts the results of calls made at a fixed rate.
type offered struct {
	mu        sync.Mutex    // guards the rest
	decided   histogram     // decisions by Redis
	inTime    uint64        // of these, the ones that ended before the time to make calls was over
	undecided histogram     // failed, or ran out of time
	failed    uint64        // of these, the ones that failed for another reason than time
	degraded  histogram     // decided without Redis
	made      time.Duration // how long making all calls took: longer than planned if this process was too slow
}

func (o *offered) calls() uint64 { return o.decided.total + o.undecided.total + o.degraded.total }

// all has all calls.
func (o *offered) all() *histogram {
	var h histogram
	for _, part := range []*histogram{&o.decided, &o.undecided, &o.degraded} {
		h.merge(part)
	}
	return &h
}

// offer has callers together make calls at a fixed rate for span, each call with a deadline, and waits for the last
// answers. A caller does not wait for an answer before it makes the next call.
func offer(ctx context.Context, s *subject, w *workload, callers int, rate float64, span time.Duration) *offered {
	parts := make([]offered, callers)
	interval := time.Duration(float64(callers) / rate * float64(time.Second))
	var running sync.WaitGroup
	started := time.Now()
	for i := range parts {
		running.Go(func() {
			pick, d := w.picker(i), s.decides[i%len(s.decides)]
			// Callers start at different moments.
			first := interval * time.Duration(i) / time.Duration(callers)
			for at := first; at < span && ctx.Err() == nil; at += interval {
				if wait := time.Until(started.Add(at)); wait > 0 {
					time.Sleep(wait)
				} else { // otherwise a caller that is behind would keep its core until it has caught up
					runtime.Gosched()
				}
				key := pick()
				running.Go(func() { parts[i].call(ctx, d, key, started.Add(span)) })
			}
			made := time.Since(started)
			parts[i].mu.Lock()
			parts[i].made = made
			parts[i].mu.Unlock()
		})
	}
	running.Wait()
	whole := &parts[0]
	for i := range parts[1:] {
		part := &parts[i+1]
		whole.decided.merge(&part.decided)
		whole.undecided.merge(&part.undecided)
		whole.inTime += part.inTime
		whole.degraded.merge(&part.degraded)
		whole.failed += part.failed
		whole.made = max(whole.made, part.made)
	}
	return whole
}

func (o *offered) call(ctx context.Context, d decide, key string, end time.Time) {
	// Contexts with a common parent share its lock, so thousands of calls would wait for each other and not for
	// Redis.
	parent := context.WithoutCancel(ctx)
	ctx, cancel := context.WithTimeout(parent, deadline)
	started := time.Now()
	for left, _ := ctx.Deadline(); left.Sub(started) < deadline*9/10; left, _ = ctx.Deadline() {
		cancel() // this goroutine had to wait for a processor
		ctx, cancel = context.WithTimeout(parent, deadline)
		started = time.Now()
	}
	what, err := d(ctx, key)
	ended := time.Now()
	// A limiter may know that the deadline has passed before the context's timer has fired.
	ranOut := ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded)
	cancel()

	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case what == degraded:
		o.degraded.add(ended.Sub(started))
	case what == allowed, what == denied:
		o.decided.add(ended.Sub(started))
		if ended.Before(end) {
			o.inTime++
		}
	default:
		o.undecided.add(ended.Sub(started))
		if err != nil && !ranOut {
			o.failed++
		}
	}
}
