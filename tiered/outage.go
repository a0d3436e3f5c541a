package tiered

import (
	"errors"
	"fmt"
	"runtime"
	"weak"

	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
)

// OutagePolicy says what a rule does while Redis cannot be reached. Its String method returns
// "approximate", "allow" or "deny".
type OutagePolicy = outage.Policy

const (
	// Approximate holds each instance to its share of the limit: what it granted itself in the last
	// window, and its part of what was free when Redis last answered. For a key that the instance does
	// not know, the share is the limit divided by the size of the fleet. Approximate is the default.
	Approximate = outage.Approximate
	// Allow lets everything through. It is for limits that protect fairness, not safety.
	Allow = outage.Allow
	// Deny lets nothing through. It is for limits that protect safety, such as limits on login attempts.
	Deny = outage.Deny
)

// OnOutage sets what the rule does while Redis cannot be reached; the default is
// [Approximate].
func OnOutage(p OutagePolicy) RuleOption {
	return option.Set(func(c *ruleConfig) { c.policy = p },
		p <= Deny, "outage policy %d, must be Approximate, Allow or Deny", p)
}

// State says who decides at the moment. Its String method returns "healthy", "outage" or
// "settling".
type State = outage.State

const (
	// Healthy means that Redis decides.
	Healthy = outage.Healthy
	// Outage means that Redis counts as lost, and the rules' outage policies decide.
	Outage = outage.Outage
	// Settling means that Redis does not know of all grants, because it is just back, has lost data, or
	// often misses the deadline. A request must fit both in Redis and in this instance's share of the
	// limit. Only for rules with the policy Allow, Redis decides alone.
	Settling = outage.Settling
)

// outageRule returns what decisions without Redis need to know of a rule.
func (r *Rule) outageRule() *outage.Rule {
	l, lim, a := r.limiter, r.limit, r.algorithm
	inOutage := &outage.Rule{
		Name: r.name, Limit: lim, Algorithm: a, Policy: r.config.policy, Encoded: r.encoded, Capacity: r.capacity,
		Sliding: a.Same(limit.SlidingLog()) || a.Same(limit.SlidingCounter(1, limit.Strict)),
		Salt:    l.hasher.Salt(fmt.Sprint("ledger ", r.name, " ", lim.Window())),
		Terms:   l.hasher.Salt(fmt.Sprint("terms ", lim, " ", a)),
		Number:  l.ledger.RuleNumber(r.name),
	}
	// Only when r is gone are none of its units left to charge. The reference to the ledger is weak, because a ledger
	// with such units refers to r: it would keep r, and a closed limiter with it, for as long as the process runs.
	records := weak.Make(l.ledger)
	runtime.AddCleanup(r, func(name string) {
		if records := records.Value(); records != nil {
			records.ForgetRule(name)
		}
	}, r.name)
	return inOutage
}

// requestAbout returns a request for a shard about a key, without a cost.
func (r *Rule) requestAbout(key *callKey) outage.Request {
	return outage.Request{Rule: r.inOutage, Hash: key.hash, Key: key.inRedis()}
}

// leavesToPolicy reports whether an error of the Redis tier leaves the decision to the outage policy. All other
// errors are returned to the caller. It logs that a key cannot be read.
func (l *Limiter) leavesToPolicy(err error) bool {
	if errors.Is(err, remote.ErrUnreadable) {
		l.shards.Unreadable(err)
	}
	return !errors.Is(err, limit.ErrClosed) && !remote.IsCallers(err)
}
