package rulesfile

import (
	"context"
	"time"
)

// Watch looks at the file again and again until ctx ends, and loads it when it has
// changed; see [Every]. It blocks: run it on a goroutine.
//
// It reads the whole file each time and compares it, so it does not matter how the file
// changes: written in place, replaced by another, or reached through links of which any
// is changed, as Kubernetes does; on a file system of a network, too. A changed file is
// loaded once two looks in a row have seen the same, so that one which is just being
// written is not taken for done. Where writing may take longer than that, write to
// another file and rename it.
//
// A file that cannot be read or is wrong is told of once, and tried again when it has
// changed.
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

// look loads the file if it has changed since it was last tried, and not since the last
// look.
func (r *Rules) look() {
	r.loading.Lock()
	defer r.loading.Unlock()
	seen := see(r.path)
	switch {
	case seen.same(r.tried):
		r.pending = nil
	case r.pending != nil && seen.same(*r.pending):
		_ = r.try(seen) // has told everyone
	default:
		r.pending = &seen
	}
}
