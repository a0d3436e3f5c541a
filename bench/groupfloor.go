package main

import (
	"context"
	"runtime"
	"sync"
)

// gathering is group commit and nothing else: each caller waits until all waiting callers are released together. It
// shows what a decision that many callers share would cost if Redis and the limiter took no time.
type gathering struct {
	mu      sync.Mutex
	waiting []chan struct{}
	going   bool // a goroutine is releasing callers
}

func (g *gathering) join(gone chan struct{}) {
	g.mu.Lock()
	g.waiting = append(g.waiting, gone)
	first := !g.going
	g.going = true
	g.mu.Unlock()
	if first {
		go g.letGo()
	}
	<-gone
}

// letGo releases callers until none has joined since the last release.
func (g *gathering) letGo() {
	var leaving []chan struct{}
	for {
		runtime.Gosched() // released callers may join again
		g.mu.Lock()
		leaving, g.waiting = g.waiting, leaving[:0]
		g.going = len(leaving) > 0
		g.mu.Unlock()
		if len(leaving) == 0 {
			return
		}
		for _, gone := range leaving {
			gone <- struct{}{}
		}
	}
}

func openGathering(context.Context, environment, *workload) (*subject, error) {
	var g gathering
	channels := sync.Pool{New: func() any { return make(chan struct{}, 1) }}
	s := inProcess(func(context.Context, string) (outcome, error) {
		gone := channels.Get().(chan struct{})
		g.join(gone)
		channels.Put(gone)
		return allowed, nil
	}, func() error { return nil })
	s.timeEvery = 1 // as for callers that wait for Redis
	s.stateless = true
	return s, nil
}
