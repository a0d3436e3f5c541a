package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

const (
	// primedBlock is how many new draws are made before each stretch of timed calls.
	primedBlock = 65_536
	// primedStretch is how long a stretch of timed calls lasts. A denial is remembered for a second, and asking for
	// all keys of the block again takes a part of that second.
	primedStretch = 100 * time.Millisecond
	// primingTakes is about how long it takes to ask for all keys of a block.
	primingTakes = 150 * time.Millisecond
)

// drivePrimed measures answers from memory over more keys than the memory can keep fresh: a denial is remembered for
// only a second, and Redis cannot deny a million keys in a second. drivePrimed draws a block of keys and asks for
// each until its denial is remembered, which is not counted. Then the callers ask for the block, around and around,
// for a short stretch. It repeats this with the next block until the stretches add up to span. The meter counts
// during stretches only.
//
// Garbage is collected before the measurement and not during it, because marking a million keys takes long and the
// callers leave no garbage.
func drivePrimed(ctx context.Context, s *subject, w *workload, callers int, span time.Duration, m *meter) (*load, error) {
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	whole := &load{}
	for first := 0; whole.took < span; first += primedBlock {
		keys := make([]string, primedBlock)
		for i := range keys {
			keys[i] = w.keys[w.draws[(first+i)%len(w.draws)]]
		}
		if err := prime(ctx, s, keys); err != nil {
			return nil, err
		}
		part, err := stretch(ctx, s, keys, callers, m)
		if err != nil {
			return nil, err
		}
		whole.add(part)
		whole.took += part.took
	}
	return whole, ctx.Err()
}

// prime asks for each distinct key five times. The first request may be allowed, and the second is denied. The others
// are for keys whose denial the memory did not store because too many came at once.
func prime(ctx context.Context, s *subject, keys []string) error {
	seen := make(map[string]bool, len(keys))
	var different []string
	for _, key := range keys {
		if !seen[key] {
			seen[key] = true
			different = append(different, key)
		}
	}
	for range 5 {
		if err := eachKey(ctx, s, s.decides[0], different); err != nil {
			return err
		}
	}
	return nil
}

// stretch has each caller ask for its own part of the keys, all until the same moment.
func stretch(ctx context.Context, s *subject, keys []string, callers int, m *meter) (*load, error) {
	parts := make([]load, callers)
	start := make(chan struct{})
	var until time.Time // set before start
	var running sync.WaitGroup
	for i := range parts {
		own := keys[len(keys)*i/callers : len(keys)*(i+1)/callers]
		running.Go(func() {
			ctx, cancel := callerContext(ctx)
			defer cancel()
			<-start
			l, d := &parts[i], s.decides[i%len(s.decides)]
			for time.Now().Before(until) {
				for _, key := range own[1:] {
					l.call(ctx, d, key)
				}
				started := time.Now()
				l.call(ctx, d, own[0])
				l.latency.add(time.Since(started))
				runtime.Gosched() // otherwise a few callers would keep all cores until the end
			}
		})
	}
	err := m.start(ctx)
	started := time.Now()
	until = started.Add(primedStretch)
	close(start)
	running.Wait()
	took := time.Since(started)
	if err == nil {
		err = m.stop(ctx)
	}
	return sum(parts, took), err
}
