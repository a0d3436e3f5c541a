package tiered

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/tierlimit/tierlimit/internal/lease"
	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// Rule is a named limit that is ready for decisions: its algorithm is chosen, and its parameters are
// encoded. Make it with [Limiter.Rule]. It is immutable and safe for concurrent use.
type Rule struct {
	limiter    *Limiter
	name       string
	given      limit.Limit // as it was given
	limit      limit.Limit // asked, with the burst that was chosen for it, if any
	inRedis    limit.Limit // limit, less what LeaseWithinLimit keeps for leases
	config     ruleConfig
	algorithm  limit.Algorithm
	why        string // the reason for the algorithm
	capacity   int64
	maxCost    int64 // largest valid cost: the capacity, or more if denied requests count
	encoded    *remote.Rule
	denialSalt uint64 // differs for each rule, limit in Redis and algorithm
	inOutage   *outage.Rule
	counters   *ruleCounters   // counters of the rule's name
	decisions  *decisionCounts // counts for rules on a dry run, or for the others
	own        bool            // made by WithLimit, for keys with their own limit
	shadow     *shadow         // nil: none
	lease      *lease.Rule     // nil: none
	slotTTL    time.Duration   // 0 unless the limit is a limit.Concurrent

	// Guarded by the limiter's mu:
	held    bool     // Limiter.Rule has returned it
	sources []string // sources that have the rule with these settings; see PutInForceFrom
}

// newRule makes a rule, and prepares the limiter for its decisions.
func (l *Limiter) newRule(name string, lim limit.Limit, c ruleConfig) (*Rule, error) {
	if l.closed.Load() {
		return nil, limit.ErrClosed
	}
	r, err := l.describedRule(name, lim, c)
	if err != nil {
		return nil, fmt.Errorf("rule %q: %w", name, err)
	}
	if r.shadow, err = l.newShadow(r); err != nil {
		return nil, err
	}
	if r.lease != nil {
		l.leases.Begin()
	}
	if r.slotTTL != 0 {
		l.startSlots(r.slotTTL)
		runtime.AddCleanup(r, l.slots.ttls.Remove, r.slotTTL)
	}
	window := max(r.limit.Window(), r.slotTTL) // then only units that were reported again count
	l.shards.Windows.Add(window)
	runtime.AddCleanup(r, l.shards.Windows.Remove, window)
	return r, nil
}

// describedRule makes a rule without side effects, for newRule and for inspection. Its errors do not name
// the rule.
func (l *Limiter) describedRule(name string, lim limit.Limit, c ruleConfig) (*Rule, error) {
	if err := lim.Validate(); err != nil {
		return nil, err
	}
	slotTTL := time.Duration(0)
	if lim.IsConcurrent() {
		if err := c.mayHaveSlots(lim); err != nil {
			return nil, err
		}
		slotTTL = cmp.Or(c.slotTTL, defaultSlotTTL)
	} else if c.slotTTL != 0 {
		return nil, option.Invalid("a SlotTTL of %v for the limit %v, which has no slots; only concurrency limits (limit.Concurrent) have slots", c.slotTTL, lim)
	}
	asked := lim
	lim, a, why, err := l.plan(name, lim, c)
	if err != nil {
		return nil, err
	}
	terms, inRedis := lease.NewTerms(l.hasher, name, lim, a, c.leased, c.leasedWithin)
	counted := inRedis
	if c.countDenied {
		if err := c.mayCountDenied(lim, a); err != nil {
			return nil, err
		}
		counted = limit.Per(limit.MaxQuota, lim.Window())
	}
	var encoded *remote.Rule
	if slotTTL != 0 {
		encoded, err = remote.NewSlotsRule(lim, slotTTL, l.slots.holder)
	} else {
		encoded, err = remote.NewRule(counted, a)
		if err != nil && inRedis != lim {
			err = fmt.Errorf("LeaseWithinLimit of %d %% leaves %v of the limit %v: %w", c.leased, inRedis, asked, err)
		}
	}
	if err != nil {
		return nil, err
	}
	if c.unsettled == GiveBack {
		encoded = encoded.GivesBack()
	}
	r := &Rule{
		limiter: l, name: name, given: asked, limit: lim, inRedis: inRedis, config: c, algorithm: a, why: why,
		capacity:   a.Capacity(inRedis),
		maxCost:    a.Capacity(counted),
		denialSalt: l.hasher.Salt(fmt.Sprint("denial ", name, " ", inRedis, " ", a)),
		slotTTL:    slotTTL,
	}
	r.counters, r.decisions = l.metrics.rule(name, c.dryRun)
	runtime.AddCleanup(r, l.metrics.forget, r.counters) // only then can no call and no hold of the rule count any more
	r.encoded = encoded.Named(l.keys, name, (*observer)(r))
	if slotTTL != 0 {
		// What other instances hold and Redis does not know of counts for as long as the units of a window this long.
		r.inOutage = &outage.Rule{Name: name, Limit: limit.Per(lim.Quota(), slotTTL), Algorithm: a, Policy: c.policy}
		return r, nil
	}
	r.inOutage = r.outageRule()
	if terms != nil {
		r.lease = &lease.Rule{Terms: terms, Outage: r.inOutage, ForgetDenial: r.forgetDenial}
	}
	return r, nil
}

// WithLimit returns a copy of the rule with another limit. The copy has the same name, counts in Redis,
// and metrics. Use it for keys with their own limit, such as a tenant's plan. It takes some microseconds.
// So call it for each plan when the program starts, and for a tenant's own limit when that is loaded or
// changes, but not for each request. The limiter does not keep the copy. If the rule's algorithm was
// chosen by the size of its limit, it is chosen again. If the copy takes the place of an earlier one, also
// call [Rule.TakeOver].
//
// Errors wrap [limit.ErrInvalidLimit], also if only one of the two limits is a limit of [limit.Concurrent];
// [limit.ErrInvalidAlgorithm], [limit.ErrInvalidOption] or [limit.ErrClosed].
func (r *Rule) WithLimit(lim limit.Limit) (*Rule, error) {
	if !sameKind(r.limit, lim) {
		return nil, fmt.Errorf("rule %q: %w: the rule has the limit %v, so a copy cannot have %v: "+otherKind, r.name, limit.ErrInvalidLimit, r.limit, lim)
	}
	other, err := r.limiter.newRule(r.name, lim, r.config)
	if err != nil {
		return nil, err
	}
	other.own = true
	return other, nil
}

// WithOutage returns a copy of the rule with another outage policy. The copy has the same limit, counts
// in Redis and in this instance's ledger, and metrics. Use it for call sites that must decide differently
// without Redis, and prepare it when the program starts. Errors wrap [limit.ErrInvalidOption] or
// [limit.ErrClosed].
func (r *Rule) WithOutage(p OutagePolicy) (*Rule, error) {
	c := r.config
	if err := OnOutage(p)(&c); err != nil {
		return nil, fmt.Errorf("rule %q: %w", r.name, err)
	}
	other, err := r.limiter.newRule(r.name, r.given, c)
	if err != nil {
		return nil, err
	}
	other.own = r.own
	return other, nil
}

// Name returns the rule's name.
func (r *Rule) Name() string { return r.name }

// Limit returns the rule's limit. If GCRA was chosen for it, the limit has the burst that was chosen.
func (r *Rule) Limit() limit.Limit { return r.limit }

// Algorithm returns the algorithm by which the rule counts, whether it was set or chosen.
func (r *Rule) Algorithm() limit.Algorithm { return r.algorithm }

// OutagePolicy returns the policy by which the rule decides while Redis cannot be reached.
func (r *Rule) OutagePolicy() OutagePolicy { return r.config.policy }

// WorstCase returns the largest number of units that can pass for one key in any window while Redis
// decides (law 1); see [limit.Algorithm.WorstCase]. It includes units on lease; see [Lease].
func (r *Rule) WorstCase() int64 {
	worst := r.algorithm.WorstCase(r.inRedis)
	if r.lease != nil && !r.algorithm.Same(limit.FixedWindow()) {
		worst += r.lease.Most
	}
	return worst
}

var _ limit.Allower = (*Rule)(nil)

// Allow decides whether a request of cost 1 may proceed; see [Rule.AllowN].
func (r *Rule) Allow(ctx context.Context, key string) (d limit.Decision, err error) {
	err = r.decide(ctx, &d, key, 1, lua.Take)
	return d, err
}

// AllowN decides whether a request of the given cost may proceed now, and charges it if so. The key
// identifies what is limited, such as a user. It may consist of any bytes, but must not be empty.
//
// AllowN returns within the limiter's deadline, or ctx's if that is earlier. If Redis has not answered by
// then, the rule's outage policy decides, without an error. But if ctx is cancelled, or leaves less than
// three quarters of the limiter's deadline, AllowN returns ctx's error and no policy decides, so that
// callers' own deadlines do not affect limits. (To have the policy decide that early, use a limiter with
// a shorter [Deadline].) If Redis was already asked, it may have charged the cost.
//
// AllowN returns ctx's error, or an error that wraps [limit.ErrClosed] or, at once and without a trip,
// [limit.ErrInvalidKey], [limit.ErrInvalidCost], [limit.ErrCostExceedsLimit] or [limit.ErrNilContext].
func (r *Rule) AllowN(ctx context.Context, key string, cost int64) (d limit.Decision, err error) {
	err = r.decide(ctx, &d, key, cost, lua.Take)
	return d, err
}
