// Package wake has the signal that wakes background work.
package wake

import (
	"context"
	"time"
)

// Signal wakes the goroutine that waits for it. If it is sent several times before the goroutine waits,
// it wakes the goroutine once.
type Signal chan struct{}

// NewSignal returns a signal that has not been sent.
func NewSignal() Signal { return make(Signal, 1) }

// Send sends the signal. It never waits.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Run calls work until ctx ends: at once, and then again after the pause that work returned or, if that
// was 0, when the signal is sent.
func (s Signal) Run(ctx context.Context, work func() (pause time.Duration)) {
	for {
		var over <-chan time.Time
		woken := s
		if pause := work(); pause > 0 {
			over, woken = time.After(pause), nil
		}
		select {
		case <-ctx.Done():
			return
		case <-woken:
		case <-over:
		}
	}
}
