package tiered

import (
	"fmt"
	"time"

	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
	"github.com/tierlimit/tierlimit/lua"
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

// leaseTerms are a rule's.
type leaseTerms struct {
	most    int64 // units out on lease of a key, over the fleet
	reserve int64 // units that stay free
	life    time.Duration
	salt    uint64
	table   *local.Leases
}

const (
	longestLease    = time.Second
	leasesPerWindow = 8
	shortestWindow  = 100 * time.Millisecond // shorter ones have no leases
	// leaseDrift: a process counts its leases as this part shorter than Redis does,
	// since clocks do not run at the same speed. A quartz is off by a tenth of that.
	leaseDrift = 1000
)

// leaseTerms are the terms on which a limit is leased, nil if it is not, and the limit
// that Redis is to hold.
//
// Law 1. Let an algorithm grant at most B units in any window, and let at most L of a
// key's be out on lease at any moment. Take any window. A unit spent in it was charged
// in it, or it was charged before and on lease when the window began. Of the former
// there are at most B, since what is refunded was not spent and a refund never grants
// more than if its charge had not been; of the latter, at most L. So it holds B + L at
// most. L is kept because a lease counts in Redis from its charge on for its whole life,
// and the process counts that life from before it asked. Fixed windows do not add L: a
// lease ends with its window, so there a unit is spent in the window it was charged in.
func (l *Limiter) leaseTerms(name string, lim limit.Limit, a limit.Algorithm, c ruleConfig) (*leaseTerms, limit.Limit) {
	t := &leaseTerms{most: lim.Quota() * int64(c.leased) / 100, life: min(longestLease, lim.Window()/leasesPerWindow)}
	if t.most < 1 || lim.Window() < shortestWindow {
		return nil, lim
	}
	inRedis := lim
	if c.leasedWithin && !a.Same(limit.FixedWindow()) {
		inRedis = limit.Per(lim.Quota()-t.most, lim.Window()).WithBurst(lim.Burst())
	}
	t.life = t.life.Truncate(time.Microsecond)
	t.reserve = (a.Capacity(inRedis)*int64(c.leased) + 99) / 100
	t.salt = l.hasher.Salt(fmt.Sprint("lease ", name, " ", lim, " ", a, " ", c.leased, c.leasedWithin))
	t.table = l.leaseTable()
	return t, inRedis
}

// fromLease decides by the lease held for a key, if it has the units.
func (r *Rule) fromLease(hash uint64, now, cost int64, operation int) (limit.Decision, bool) {
	t := r.lease
	if r.limiter.config.virtualClock != nil {
		r.limiter.endIdleLeases() // nothing does so in real time
	}
	var spent local.Spent
	var ok bool
	if operation == lua.Peek {
		spent, ok = t.table.Peek(hash^t.salt, now, cost)
		cost = 0
	} else {
		spent, ok = t.table.Spend(hash^t.salt, now, cost)
	}
	if !ok {
		return limit.Decision{}, false
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
	l, t := r.limiter, r.lease
	hash := key.hash ^ t.salt
	want := t.table.Wanted(hash, l.now(), granted, t.life, t.most)
	if want == 0 {
		return
	}
	if !l.leases.begin() {
		t.table.Refused(hash, l.now()+int64(t.life))
		return
	}
	own := *key
	renew := func() {
		defer l.leases.end()
		r.renewLease(&own, want)
	}
	if l.config.virtualClock != nil {
		renew()
		return
	}
	go renew() // leases.end is waited for
}
