package main

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/tiered"
)

// watchBreakers has the subject count how often its limiters' breakers open. An
// open breaker stays so until the next probe, a quarter of a second, so that none
// is missed by looking now and then.
func watchBreakers(s *subject, limiters ...*tiered.Limiter) {
	var (
		opened  atomic.Int64
		watcher sync.WaitGroup
		done    = make(chan struct{})
	)
	watcher.Go(func() {
		open := make([]bool, len(limiters))
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
			}
			for i, l := range limiters {
				was := open[i]
				if open[i] = l.Degraded(); open[i] && !was {
					opened.Add(1)
				}
			}
		}
	})
	s.opened = func() int { return int(opened.Load()) }
	closeLimiters := s.close
	s.close = func() error {
		close(done)
		watcher.Wait()
		return closeLimiters()
	}
}
