package remote

import (
	"context"
	"sync"
	"sync/atomic"
)

// detached runs calls of a client that may not honour the deadline, each in a goroutine of its own, which
// is left behind if it takes too long.
type detached struct {
	running sync.WaitGroup
	count   atomic.Int64
}

// run runs f, and reports whether it returned before ctx ended. If not, f continues, or, if maxStuck others
// run, it does not begin.
func (d *detached) run(ctx context.Context, f func()) bool {
	if d.count.Add(1) > maxStuck {
		d.count.Add(-1)
		return false
	}
	done := make(chan struct{})
	d.running.Go(func() {
		defer close(done)
		defer d.count.Add(-1)
		f()
	})
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
