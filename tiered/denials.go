package tiered

import (
	"time"

	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// DenialLife sets how long the process may remember a denial of the rule, from 0 to 1 second; the default
// is 1 second. For that long the process may continue to deny a key after another process has refunded
// units, reset the key or raised the limit (law 2). The same holds after this process has refunded units
// or reset the key by a rule with another limit ([Rule.WithLimit]). With 0 no denial is remembered, and
// every request goes to Redis. [RememberDenials] sets how many denials are remembered.
func DenialLife(d time.Duration) RuleOption {
	return option.Set(func(c *ruleConfig) { c.denialLife = d },
		d >= 0 && d <= denialLife, "DenialLife of %v, must be between 0 and %v", d, denialLife)
}

// remembered decides by the remembered denial of the key, if there is one that still holds.
func (q *question) remembered(d *limit.Decision, now int64) (denied bool) {
	r, needed := q.rule, q.cost
	if q.operation == lua.TakeUpTo {
		needed = 1
	}
	known, ok := r.limiter.denials.Lookup(q.key.hash^r.denialSalt, now, needed)
	if !ok {
		return false
	}
	r.begin(d, limit.TierLocal)
	d.Remaining, d.RetryAfter, d.ResetAfter = known.Remaining, known.RetryAfter, known.ResetAfter
	r.slotsDenied(d)
	return true
}

// remember stores the denial for the next requests, if the reply is a denial.
func (r *Rule) remember(e *remote.Entry, reply *remote.Reply, sent, cost int64, life time.Duration) {
	if reply.Status != remote.Denied || life == 0 {
		return
	}
	r.limiter.denials.Remember(e.Hash^r.denialSalt, sent, local.Denial{
		Cost:       cost,
		RetryAfter: reply.RetryAfter,
		NextAfter:  reply.NextAfter,
		ResetAfter: reply.ResetAfter,
		Remaining:  reply.Remaining,
		Life:       life,
	})
}

// forgetDenial forgets a key's denial, because units have been given back.
func (r *Rule) forgetDenial(hash uint64) {
	r.limiter.denials.Forget(hash^r.denialSalt, r.limiter.now())
}
