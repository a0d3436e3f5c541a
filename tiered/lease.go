package tiered

import (
	"github.com/tierlimit/tierlimit/internal/lease"
	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// mostLeased is the largest part of a limit that may be out on lease, in percent.
const mostLeased = 50

// Lease lets processes lease units of the rule's keys: have them charged in Redis in
// advance, and spend them without a trip. At most so many percent of the limit, 1 to 50,
// are out on lease of a key at any time, over the whole fleet; Redis sees to that. It is
// worth while for keys that one process is asked for many times a second.
//
// A lease lasts an eighth of the window, a second at most, and ends with a fixed window.
// It is sized by what the process was asked for, and by what there is: half of what may
// still be on lease, and half of what is free beyond the same percentage of the limit
// (of the burst under GCRA). So the last units are decided one by one, exactly. Units
// that are not used go back to Redis; those of a process that crashed stay charged, and
// leave the window like all others.
//
// What it costs: units are charged up to a lease's life before they are spent, so any
// window may hold as many more as may be out on lease, see [Rule.WorstCase]; to keep
// within the limit all the same use [LeaseWithinLimit]. And while one process has units
// on lease, another may be denied for want of them, with a RetryAfter that is longer
// than it turns out to be.
//
// Limits of which that percentage is less than a unit, windows below 100 ms and keys of
// more than 1 kB have no leases.
func Lease(percent int) RuleOption {
	return func(c *ruleConfig) error {
		if percent < 1 || percent > mostLeased {
			return option.Invalid("%d %% on lease, must be between 1 and %d", percent, mostLeased)
		}
		c.leased, c.leasedWithin = percent, false
		return nil
	}
}

// LeaseWithinLimit is [Lease] for limits that must not be exceeded: Redis is told a limit
// that is smaller by what may be out on lease. So [Rule.WorstCase] is no larger than
// without leases, and as long as little is on lease that part of the limit lies idle.
// Costs above the smaller limit are errors.
func LeaseWithinLimit(percent int) RuleOption {
	return func(c *ruleConfig) error {
		err := Lease(percent)(c)
		c.leasedWithin = true
		return err
	}
}

// newLeases makes what keeps the leases of all rules.
func (l *Limiter) newLeases() *lease.Keeper {
	return lease.New(lease.Config{
		Context: l.ctx, Go: l.background.Go, Now: l.now, Deadline: l.config.deadline, AtOnce: maxBatch,
		Virtual: l.config.virtualClock != nil,
		Shard:   func(key remote.UserKey) *outage.Shard { return l.shards.Of(key) },
		NotGivenBack: func(err error) {
			l.log.Warn("lease", "units of a lease could not be given back; they stay charged until they leave the window", "error", err)
		},
	})
}

// fromLease decides by the lease held for a key, if it has the units.
func (r *Rule) fromLease(hash uint64, now, cost int64, operation int) (limit.Decision, bool) {
	peek := operation == lua.Peek
	spent, ok := r.limiter.leases.Spend(r.lease, hash, now, cost, peek)
	if !ok {
		return limit.Decision{}, false
	}
	if peek {
		cost = 0
	}
	d := r.decision(limit.TierLease)
	d.Allowed, d.Granted, d.Remaining, d.ResetAfter = true, cost, spent.Remaining, spent.ResetAfter
	if cost > 0 {
		d.ChargedAt = spent.Stamp
	}
	return d, true
}

// wantLease takes note of what Redis granted, and asks for a lease if it is worth while.
func (r *Rule) wantLease(key *callKey, granted int64) {
	r.limiter.leases.Granted(r.lease, key.hash, key.inRedis(), granted)
}
