package remote

import (
	"context"
	"sync/atomic"
	"time"
)

// tripContext is the context of a trip. It has a deadline, which go-redis applies to reads and
// writes, but no timer: the reaper ends it. A timer for each trip would wake up an idle process as
// often as the answers do.
type tripContext struct {
	deadline time.Time
	done     chan struct{}
	ended    atomic.Bool
}

func newTripContext(ends int64) *tripContext {
	return &tripContext{deadline: processStart.Add(microseconds(ends)), done: make(chan struct{})}
}

// end ends the context, once.
func (c *tripContext) end() {
	if c.ended.CompareAndSwap(false, true) {
		close(c.done)
	}
}

// Deadline, Done, Err and Value implement context.Context.
func (c *tripContext) Deadline() (time.Time, bool) { return c.deadline, true }
func (c *tripContext) Done() <-chan struct{}       { return c.done }
func (c *tripContext) Value(any) any               { return nil }
func (c *tripContext) Err() error {
	if c.ended.Load() {
		return context.DeadlineExceeded
	}
	return nil
}
