package remote

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// tripContext is the context of a trip. It has a deadline, which go-redis applies to reads and writes, but no
// timer: the reaper ends it. A timer for each trip would wake up an idle process as often as answers do.
type tripContext struct {
	deadline time.Time
	ended    atomic.Bool
	once     sync.Once
	done     chan struct{} // made when it is first needed; on most trips the client never calls Done
}

func newTripContext(ends int64) *tripContext {
	// The deadline is not computed from processStart: in a bubble of testing/synctest, times have no monotonic
	// reading.
	return &tripContext{deadline: time.Now().Add(microseconds(ends - localTime()))}
}

// end ends the context. It may be called more than once.
func (c *tripContext) end() {
	if !c.ended.Swap(true) {
		close(c.channel())
	}
}

func (c *tripContext) channel() chan struct{} {
	c.once.Do(func() { c.done = make(chan struct{}) })
	return c.done
}

// Deadline, Done, Err and Value implement context.Context.
func (c *tripContext) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *tripContext) Done() <-chan struct{} { return c.channel() }

func (c *tripContext) Err() error {
	if !c.ended.Load() {
		return nil
	}
	<-c.channel() // which end closes now, if it has not done so yet
	return context.DeadlineExceeded
}

func (c *tripContext) Value(any) any { return nil }
