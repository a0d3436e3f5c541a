package remote

import (
	"context"
	"sync"
	"time"
)

// tripContext is the context of a trip. It has a deadline, which go-redis applies to reads and writes, but no
// timer: the reaper ends it. A timer for each trip would wake up an idle process as often as answers do.
type tripContext struct {
	deadline time.Time

	mu    sync.Mutex    // guards the rest
	done  chan struct{} // nil until Done is called; on most trips the client never calls it
	ended bool
}

func newTripContext(ends int64) *tripContext {
	// The deadline is not computed from processStart: in a bubble of testing/synctest, times have no monotonic
	// reading.
	return &tripContext{deadline: time.Now().Add(microseconds(ends - localTime()))}
}

// end ends the context. It may be called more than once.
func (c *tripContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended && c.done != nil {
		close(c.done)
	}
	c.ended = true
}

// Deadline, Done, Err and Value implement context.Context.
func (c *tripContext) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *tripContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.ended {
			close(c.done)
		}
	}
	return c.done
}

func (c *tripContext) Value(any) any { return nil }

func (c *tripContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return context.DeadlineExceeded
	}
	return nil
}
