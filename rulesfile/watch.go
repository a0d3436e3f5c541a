package rulesfile

import (
	"context"
	"time"
)

// Watch checks the file regularly until ctx ends, and loads it when it has changed; see [Every]. It
// blocks, so run it on a goroutine.
//
// It reads the whole file each time and compares the text, so the file may be written in place,
// replaced, or reached through links that change, as in Kubernetes. This works on network file systems,
// too. A changed file is loaded once two checks in a row have read the same text, so that a file is not
// loaded while it is being written. If writing may take longer than the time between two checks, write
// to another file and rename it.
//
// A file that cannot be read or is invalid is reported once. It is tried again when it has changed.
func (r *Rules) Watch(ctx context.Context) {
	ticker := time.NewTicker(r.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			r.look()
		}
	}
}

// look loads the file if it differs from the one that was last tried, and equals what the previous look
// read.
func (r *Rules) look() {
	r.loading.Lock()
	defer r.loading.Unlock()
	seen := see(r.path)
	switch {
	case seen.same(r.tried):
		r.pending = nil
	case r.pending != nil && seen.same(*r.pending):
		_ = r.try(seen) // try reports errors itself
	default:
		r.pending = &seen
	}
}
