package remote

import (
	"context"
	"sync/atomic"
	"time"
)

// deadlines hands out contexts that end within a deadline from now. Making a context
// with a timer for each trip costs as much as the rest of a small one, so trips that
// begin within a sixteenth of the deadline share one: they get that much less.
type deadlines struct {
	deadline time.Duration
	current  atomic.Pointer[sharedContext]
}

type sharedContext struct {
	context.Context
	cancel context.CancelFunc // not called: the context ends by itself, soon
	until  int64              // local time up to which it is handed out
}

// context returns a context that ends between 15/16 of the deadline and all of it
// from now, which is the local time.
func (d *deadlines) context(now int64) context.Context {
	if c := d.current.Load(); c != nil && now <= c.until {
		return c
	}
	ctx, cancel := context.WithTimeout(context.Background(), d.deadline)
	d.current.Store(&sharedContext{ctx, cancel, now + d.deadline.Microseconds()/16})
	return ctx
}
