package tiered

import (
	"runtime"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// end finishes a decision about a single request, whichever tier made it, or the error in its place. It
// counts the decision, shows it to the live page, compares it with the exact log if the rule has a
// shadow, and turns it into the caller's result (see callerResult). A peek decides nothing, so end only turns it
// into the result. The returned error is the caller's.
func (q *question) end(d *limit.Decision, err error) error {
	r := q.rule
	if q.operation != lua.Peek {
		r.count(q.key.original, d, err)
	}
	if q.operation == lua.Take && err == nil {
		r.shadow.compare(&q.key, q.cost, d)
	}
	return r.callerResult(d, err)
}

// count counts a decision, or the error in its place, and shows a decision to the live page. Without a
// live page, this costs only the loads of two pointers.
func (r *Rule) count(key string, d *limit.Decision, err error) {
	if err != nil {
		r.counters.failed.of(err).Add(1)
		return
	}
	if n := r.decisions.add(d); d.Tier != limit.TierRedis {
		r.limiter.yield(n)
	}
	if own := r.limiter.ownLimits.Load(); own != nil {
		own.decided(r, key)
	}
	if watcher := r.limiter.watcher.Load(); watcher != nil {
		(*watcher)(r.name, key, d.Denied())
	}
}

// callerResult turns a decision, or the error in its place, into the caller's result. For a rule on a dry run,
// the result is always an allowed decision.
func (r *Rule) callerResult(d *limit.Decision, err error) error {
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

// yieldEvery is about how many decisions of a tier are made in this process before other goroutines get a
// turn.
const yieldEvery = 64

// yield lets other goroutines run now and then if some calls wait for Redis. Callers that are decided in
// this process may ask again at once. If there are more such callers than processors, the goroutine that
// should read Redis's answer waits until each of them has used up its time slice. With 64 callers of
// denied keys, one in ten calls that asked Redis missed the deadline; since such callers yield, none
// does. While nobody waits for Redis, nothing is yielded.
//
// decisions is the number of decisions so far; see [decisionCounts.add].
func (l *Limiter) yield(decisions uint64) {
	if decisions%yieldEvery == 0 && l.shards.HasWaiters() {
		runtime.Gosched()
	}
}
