package main

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"
)

// deadline is the default one of tierlimit's decisions, and what is given to each
// call when too many are made.
const deadline = 50 * time.Millisecond

// offered is what came of calls that were made at a fixed rate.
type offered struct {
	mu        sync.Mutex // guards the rest
	decided   histogram  // by Redis
	inTime    uint64     // of these, before the last call was made
	undecided histogram  // failed, or ran out of time
	failed    uint64     // of these, other than by running out of time
	degraded  uint64
	made      time.Duration // how long it took to make all calls: longer than planned if this process was too slow
}

func (o *offered) calls() uint64 { return o.decided.total + o.undecided.total + o.degraded }

// offer has callers make calls at a fixed rate together for span, each call with a
// deadline, and waits for the last answers. A caller does not wait for one answer
// before it makes the next call.
func offer(ctx context.Context, s *subject, w *workload, callers int, rate float64, span time.Duration) *offered {
	parts := make([]offered, callers)
	interval := time.Duration(float64(callers) / rate * float64(time.Second))
	var running sync.WaitGroup
	started := time.Now()
	for i := range parts {
		running.Go(func() {
			pick, d := w.picker(i), s.decides[i%len(s.decides)]
			// Callers do not all call at the same moment.
			first := interval * time.Duration(i) / time.Duration(callers)
			for at := first; at < span && ctx.Err() == nil; at += interval {
				if wait := time.Until(started.Add(at)); wait > 0 {
					time.Sleep(wait)
				} else { // or else who is behind would have all cores until it is not
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
		whole.degraded += part.degraded
		whole.failed += part.failed
		whole.made = max(whole.made, part.made)
	}
	return whole
}

func (o *offered) call(ctx context.Context, d decide, key string, end time.Time) {
	// Contexts of one parent share its lock: thousands of calls would wait for each other, not for Redis.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deadline)
	started := time.Now()
	what, err := d(ctx, key)
	ended := time.Now()
	// A limiter may know that the deadline has passed before the context's timer has fired.
	ranOut := ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded)
	cancel()

	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case what == degraded:
		o.degraded++
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
