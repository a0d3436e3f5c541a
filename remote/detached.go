package remote

import (
	"context"
	"sync"
	"sync/atomic"
)

// detached makes calls of a client that may not honor the deadline. Each call runs in a goroutine of its own,
// which is left behind if the call takes too long.
type detached struct {
	running sync.WaitGroup
	count   atomic.Int64
}

// run runs f, and reports whether f returned before ctx ended. If not, f continues. If maxStuck others are
// running, f does not begin, and run returns false.
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
