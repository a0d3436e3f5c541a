package tiered

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierlimit/tierlimit/internal/lease"
	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/plan"
	"github.com/tierlimit/tierlimit/remote"
)

// Rule is a named limit, prepared once: algorithm chosen, numbers encoded,
// counters looked up. Make it with [Limiter.Rule]. It is immutable and safe for
// concurrent use.
type Rule struct {
	limiter    *Limiter
	name       string
	asked      limit.Limit // as it was given
	limit      limit.Limit // with the burst that was chosen for it, if any
	inRedis    limit.Limit // the limit that Redis enforces
	config     ruleConfig
	algorithm  limit.Algorithm
	why        string // the reason for the algorithm
	capacity   int64
	mostCost   int64 // largest valid cost: the capacity, or more if denied requests count
	sliding    bool  // capacity that is not free equals the units of the last window
	encoded    *remote.Rule
	denialSalt uint64 // differs for each rule and limit
	inOutage   *outage.Rule
	metrics    ruleMetrics
	own        bool        // a limit of some keys only, see WithLimit
	shadow     *shadow     // nil: none
	lease      *lease.Rule // nil: none
	slots      *slotTerms  // nil unless the limit is a limit.Concurrent

	// Guarded by the limiter's mu:
	held   bool   // Limiter.Rule has returned it
	source string // the source that put it in force, see PutInForceFrom
}

// newRule makes a rule for decisions.
func (l *Limiter) newRule(name string, lim limit.Limit, c ruleConfig) (*Rule, error) {
	r, err := l.describedRule(name, lim, c)
	if err != nil {
		return nil, err
	}
	if r.slots != nil {
		l.startSlots(r.slots.ttl)
	}
	l.shards.AddWindow(r.limit.Window())
	return r, nil
}

// describedRule makes a rule that can be inspected, without side effects.
func (l *Limiter) describedRule(name string, lim limit.Limit, c ruleConfig) (*Rule, error) {
	if err := lim.Validate(); err != nil {
		return nil, fmt.Errorf("rule %q: %w", name, err)
	}
	if lim.IsConcurrent() {
		return l.describedSlotsRule(name, lim, c)
	} else if c.slotTTL != 0 {
		return nil, fmt.Errorf("rule %q: %w", name, option.Invalid("a SlotTTL of %v for a limit of %v, which holds no slots: see limit.Concurrent", c.slotTTL, lim))
	}
	asked := lim
	lim, a, why, err := l.plan(name, lim, c)
	if err != nil {
		return nil, fmt.Errorf("rule %q: %w", name, err)
	}
	terms, inRedis := lease.NewTerms(l.hasher, name, lim, a, c.leased, c.leasedWithin)
	capacity := a.Capacity(inRedis)
	if c.countDenied {
		if err := c.mayCountDenied(lim, a); err != nil {
			return nil, fmt.Errorf("rule %q: %w", name, err)
		}
		inRedis = limit.Per(limit.MaxQuota, lim.Window())
	}
	encoded, err := remote.NewRule(inRedis, a)
	if err != nil {
		return nil, fmt.Errorf("rule %q: %w", name, err)
	}
	if c.unsettled == GiveBack {
		encoded = encoded.GivesBack()
	}
	shadow, err := l.newShadow(name, lim, a, c.shadow)
	if err != nil {
		return nil, fmt.Errorf("shadow of rule %q: %w", name, err)
	}
	r := &Rule{
		limiter:    l,
		name:       name,
		asked:      asked,
		limit:      lim,
		config:     c,
		algorithm:  a,
		why:        why,
		capacity:   capacity,
		mostCost:   a.Capacity(inRedis),
		sliding:    a.Same(limit.SlidingLog()) || a.Same(limit.SlidingCounter(1, limit.Strict)),
		denialSalt: l.hasher.Salt(fmt.Sprint("denial ", name, " ", lim, " ", a)),
		metrics:    l.metrics.rule(name, c.dryRun),
		shadow:     shadow,
		inRedis:    inRedis,
	}
	r.encoded = encoded.Named(l.keys, name, (*asker)(r))
	r.inOutage = &outage.Rule{
		Name: name, Limit: lim, Algorithm: a, Policy: c.policy, Encoded: r.encoded, Capacity: r.capacity, Sliding: r.sliding,
		Salt: l.hasher.Salt(fmt.Sprint("ledger ", name, " ", lim.Window())), Number: l.ledger.RuleNumber(name),
	}
	if terms != nil {
		l.leases.Begin()
		r.lease = &lease.Rule{Terms: terms, Outage: r.inOutage, ForgetDenial: r.forgetDenial}
	}
	return r, nil
}

// WithLimit returns the same rule with another limit: same name, same counts in Redis, same
// metrics. It is for keys with their own limit, such as a tenant's plan; prepare one rule per plan
// at start. If the rule's algorithm was chosen by the size of its limit, it is chosen again.
func (r *Rule) WithLimit(lim limit.Limit) (*Rule, error) {
	other, err := r.limiter.newRule(r.name, lim, r.config)
	if err != nil {
		return nil, err
	}
	other.own = true
	return other, nil
}

// WithOutage returns the same rule with another outage policy: same limit, same counts in Redis and
// on this instance's record, same metrics. It is for call sites that must decide differently
// without Redis; prepare it at start.
func (r *Rule) WithOutage(p OutagePolicy) (*Rule, error) {
	c := r.config
	if err := OnOutage(p)(&c); err != nil {
		return nil, fmt.Errorf("rule %q: %w", r.name, err)
	}
	other, err := r.limiter.newRule(r.name, r.asked, c)
	if err != nil {
		return nil, err
	}
	other.own = r.own
	return other, nil
}

// Name returns the rule's name.
func (r *Rule) Name() string { return r.name }

// Limit returns the rule's limit, with the burst that was chosen for it if GCRA was chosen.
func (r *Rule) Limit() limit.Limit { return r.limit }

// Algorithm returns how the rule counts: the algorithm that was set, or the one that was chosen.
func (r *Rule) Algorithm() limit.Algorithm { return r.algorithm }

// OutagePolicy returns what the rule does while Redis cannot be reached.
func (r *Rule) OutagePolicy() OutagePolicy { return r.config.policy }

// WorstCase returns the most units that Redis can let through for one key in any window (law 1),
// see [limit.Algorithm.WorstCase]. It includes units that may be on lease, see [Lease].
func (r *Rule) WorstCase() int64 {
	if r.config.countDenied {
		return r.algorithm.WorstCase(r.limit)
	}
	worst := r.algorithm.WorstCase(r.inRedis)
	if r.lease != nil && !r.algorithm.Same(limit.FixedWindow()) {
		worst += r.lease.Most
	}
	return worst
}

var _ limit.Allower = (*Rule)(nil)

// Allow decides whether a request of cost 1 may proceed; see [Rule.AllowN].
func (r *Rule) Allow(ctx context.Context, key string) (limit.Decision, error) {
	return r.AllowN(ctx, key, 1)
}

// AllowN decides whether a request of the given cost may proceed now, and charges it if so. The key
// identifies what is limited, such as a user; it may be any bytes, but not empty.
//
// It returns within the limiter's deadline, or ctx's if that is earlier. If Redis has not answered
// by then, the rule's outage policy decides, without an error. But if ctx is cancelled, or leaves
// less than three quarters of the limiter's deadline, AllowN returns ctx's error and no policy
// decides, so that callers' own deadlines do not affect limits. (To have the policy decide that
// early, use a limiter with a shorter [Deadline].) Redis may have charged the cost, if it was asked
// already.
//
// Errors wrap [limit.ErrInvalidKey], [limit.ErrInvalidCost] or
// [limit.ErrCostExceedsLimit], at once and without a trip; [limit.ErrClosed]; or are ctx's
// own.
func (r *Rule) AllowN(ctx context.Context, key string, cost int64) (limit.Decision, error) {
	q := r.ask(key, cost, lua.Take)
	d, err := q.decide(ctx)
	err = q.end(&d, err)
	return d, err
}

// entry returns the entry that asks Redis for a decision.
func (r *Rule) entry(key *callKey, cost int64, operation int) remote.Entry {
	e := remote.Entry{Key: string(key.inRedis()), Hash: key.hash, Rule: r.encoded, Cost: cost, Operation: operation}
	key.hold.ask(&e)
	return e
}

// outage reports whether an error of the Redis tier leaves the decision to the outage policy. Other
// errors are returned to the caller.
func (l *Limiter) outage(err error) bool {
	if errors.Is(err, remote.ErrUnreadable) {
		l.warnUnreadable(err)
	}
	return !errors.Is(err, limit.ErrClosed) && !remote.IsCallers(err)
}

func (l *Limiter) warnUnreadable(err error) {
	l.log.Warn("unreadable", "a key in Redis cannot be read; the outage policy decides for it", "error", err)
}

// remembered returns the decision if the key is known to be denied.
func (r *Rule) remembered(hash uint64, now, cost int64) (limit.Decision, bool) {
	if r.limiter.denials == nil {
		return limit.Decision{}, false
	}
	known, ok := r.limiter.denials.Lookup(hash^r.denialSalt, now, cost)
	if !ok {
		return limit.Decision{}, false
	}
	d := r.decision(limit.TierLocal)
	d.Remaining, d.RetryAfter, d.ResetAfter = known.Remaining, known.RetryAfter, known.ResetAfter
	r.slotsDenied(&d)
	return d, true
}

// check validates a call, at once and without a trip (law 6).
func (r *Rule) check(ctx context.Context, key string, cost int64) error {
	if r.slots != nil {
		return fmt.Errorf("%w: rule %q has the limit %v, whose units are held and given back: use Acquire, AcquireWait or TakeAll", limit.ErrNotForLimit, r.name, r.asked)
	}
	return r.checkCall(ctx, key, cost)
}

// checkCall is check for rules of all limits.
func (r *Rule) checkCall(ctx context.Context, key string, cost int64) error {
	switch {
	case r.limiter.closed.Load():
		return limit.ErrClosed
	case key == "":
		return fmt.Errorf("%w: it is empty", limit.ErrInvalidKey)
	case len(key) > limit.MaxKey:
		return fmt.Errorf("%w: it has %d bytes, must be at most %d", limit.ErrInvalidKey, len(key), limit.MaxKey)
	case cost < 1:
		return fmt.Errorf("%w: %d, must be at least 1", limit.ErrInvalidCost, cost)
	case cost > r.mostCost:
		return fmt.Errorf("%w: cost %d, rule %q grants at most %d at once (%v, %v)", limit.ErrCostExceedsLimit, cost, r.name, r.mostCost, r.asked, plan.Candidate{Limit: r.limit, Algorithm: r.algorithm})
	}
	return ctx.Err()
}

// asker is a rule as the receiver of Redis's answers.
type asker Rule

// Answered records an answer of Redis, once for all callers that share the entry: denials for later
// requests, grants for a possible outage. sent is the limiter's time before Redis was asked: waits
// that Redis counts from its reply are counted from sent here, so they end no later (law 2).
func (a *asker) Answered(shard int, e *remote.Entry, reply *remote.Reply, sent int64) {
	upTo := e.Operation == lua.TakeUpTo || e.Operation == lua.HoldUpTo
	if e.Operation > lua.Peek && !asksToHold(e) {
		return
	}
	r := (*Rule)(a)
	if r.slots != nil {
		r.slotsAnswered(e, reply, sent)
		return
	}
	if r.config.countDenied {
		judged := judge(r.limit.Quota(), reply, e.Cost, max(1, e.Count), e.Operation)
		reply = &judged
	}
	if reply.Granted > 0 || reply.Status == remote.Denied {
		r.limiter.shards.At(shard).Learned(&outage.Question{Rule: r.inOutage, Hash: e.Hash, Key: remote.UserKey(e.Key)}, reply)
	}
	cost := e.Cost
	if upTo {
		cost = 1
	}
	if asksToHold(e) && reply.Remaining >= cost {
		return // a denial may be due to too many holds, and does not concern other requests
	}
	r.remember(e, reply, sent, cost, r.config.denialLife)
}

// remember stores a reply for later requests if it is a denial.
func (r *Rule) remember(e *remote.Entry, reply *remote.Reply, sent, cost int64, life time.Duration) {
	if reply.Status != remote.Denied || r.limiter.denials == nil || life == 0 {
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

// fromRedis turns the reply to a single request into a decision.
func (r *Rule) fromRedis(reply *remote.Reply, cost int64, operation int) limit.Decision {
	d := r.decision(limit.TierRedis)
	if r.config.countDenied {
		d.Used = limit.MaxQuota - reply.Remaining
		judged := judge(r.limit.Quota(), reply, cost, 1, operation)
		reply = &judged
	}
	d.Allowed, d.HeldBack, d.Granted = reply.Status == remote.Allowed, reply.Status == remote.HeldBack, reply.Granted
	d.Remaining, d.RetryAfter, d.ResetAfter = reply.Remaining, reply.RetryAfter, reply.ResetAfter
	if d.Granted > 0 {
		d.ChargedAt = reply.Stamp
	}
	return d
}

// decision returns the fields that all decisions of a tier have in common.
func (r *Rule) decision(tier limit.Tier) limit.Decision {
	return limit.Decision{Tier: tier, Limit: r.limit.Quota(), Algorithm: r.algorithm}
}

// heldBack returns the decision of a rule that does not deny, if another one of the request does.
func (r *Rule) heldBack(tier limit.Tier) limit.Decision {
	d := r.decision(tier)
	d.HeldBack = true
	return d
}
