package tiered

import (
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// end is where the way of every decision ends that was asked for by itself, whoever made it: it
// is counted, watched and compared, and becomes what the caller is told. Peeks are only told.
func (r *Rule) end(key *callKey, cost int64, operation int, d *limit.Decision, err error) error {
	if operation != lua.Peek {
		r.count(key.said, d, err)
	}
	if operation == lua.Take && err == nil {
		r.shadow.compare(key, cost, d)
	}
	return r.tell(d, err)
}

// count counts a decision, or the error in its place, and tells those who watch decisions of it.
// Where there is no live page that costs the loads of two pointers.
func (r *Rule) count(key string, d *limit.Decision, err error) {
	if err != nil {
		r.metrics.failed.count(err)
		return
	}
	r.metrics.decisions.add(d)
	if own := r.limiter.ownLimits.Load(); own != nil {
		own.decided(r, key)
	}
	if watcher := r.limiter.watcher.Load(); watcher != nil {
		(*watcher)(r.name, key, d.Denied())
	}
}

// tell makes a decision, or an error, what the caller is told of it: on a dry run, to go on.
func (r *Rule) tell(d *limit.Decision, err error) error {
	switch {
	case err != nil && !r.config.dryRun:
		*d = limit.Decision{}
		return err
	case err != nil:
		*d = r.decision(limit.TierLocal)
		d.Allowed, d.DryRun = true, true
	case r.config.dryRun:
		d.DryRun, d.WouldDeny, d.Allowed = true, !d.Allowed, true
	}
	return nil
}
