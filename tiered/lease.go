package tiered

import (
	"github.com/tierlimit/tierlimit/internal/lease"
	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// maxLeased is the largest part of a limit that may be out on lease, in percent.
const maxLeased = 50

// Lease lets processes lease units of the rule's keys. The units are charged in Redis in advance, and
// spent without a trip. At most the given percentage of the limit, 1 to 50, is on lease for a key at any
// time, over the whole fleet; Redis enforces this. Leases pay off for keys that are requested many times
// a second in one process.
//
// A lease lasts an eighth of the window, at most a second, and ends no later than a fixed window does.
// Its size follows the process's demand. It is at most half of what may still be leased. It is also at
// most half of the free units beyond the same percentage of the limit (under GCRA, of the burst). So the
// last units are decided one by one, exactly. Unused units go back to Redis. The unused units of a
// process that crashed stay charged, and leave the window like all others. So do those of a lease
// that Redis granted with an answer that was lost.
//
// Leases have two costs. Units are charged up to a lease's life before they are spent, so any window may
// hold as many more units as may be on lease; see [Rule.WorstCase]. Use [LeaseWithinLimit] to keep within
// the limit. And while one process has units on lease, another may be denied because they are missing,
// with a RetryAfter that is longer than necessary.
//
// Leases are spent by calls that ask for one rule and key: [Rule.Allow], [Rule.AllowN], [Rule.AllowUpTo] and
// [Rule.Wait]. Requests that are decided together, as by [Limiter.AllowAll] and by a middleware with several
// limits for a request, always take a trip to Redis, so a lease has only costs for them.
//
// A rule has no leases if the percentage of the limit is less than one unit, or if the window is below
// 100 ms. Keys of more than 1 kB have no leases either.
func Lease(percent int) RuleOption { return leased(percent, false) }

// LeaseWithinLimit is [Lease] for limits that must not be exceeded. In Redis, the limit is reduced by the
// units that may be on lease. So [Rule.WorstCase] is no larger than without leases, but that part of the
// limit is unused while little is on lease, and all the time if requests of the rule are decided together
// with others. Costs above the reduced limit are errors.
func LeaseWithinLimit(percent int) RuleOption { return leased(percent, true) }

func leased(percent int, within bool) RuleOption {
	return func(c *ruleConfig) error {
		if c.leased != 0 && c.leasedWithin != within { // otherwise their order would say whether the limit holds
			return option.Invalid("both Lease and LeaseWithinLimit; set only one of them")
		}
		c.leased, c.leasedWithin = percent, within
		return option.Check(percent >= 1 && percent <= maxLeased, "a lease of %d %% of the limit, must be between 1 and %d", percent, maxLeased)
	}
}

// newLeases makes the keeper of all rules' leases.
func (l *Limiter) newLeases() *lease.Keeper {
	return lease.New(l.shards, l.config.virtualClock != nil, func(err error) {
		l.log.Warn("lease", "units of a lease could not be given back; they stay charged until they leave the window", "error", err)
	})
}

// fromLease decides from the lease of the key, if the lease has enough units.
func (q *question) fromLease(d *limit.Decision, now int64) (decided bool) {
	r, cost := q.rule, q.cost
	if q.operation == lua.Peek {
		cost = 0
	}
	spent, ok := r.limiter.leases.Spend(r.lease, q.key.hash, now, q.cost, cost)
	if !ok {
		return false
	}
	r.begin(d, limit.TierLease)
	d.Allowed, d.Granted, d.Remaining, d.ResetAfter = true, cost, spent.Remaining, spent.ResetAfter
	if cost > 0 {
		d.ChargedAt = spent.Stamp
	}
	return true
}
