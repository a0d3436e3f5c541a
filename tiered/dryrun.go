package tiered

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
)

// DryRun lets the rule decide and charge as usual, but never deny, to show what a limit would do before
// it is enforced. This is also called shadow mode ([Shadow] is something different: it compares
// algorithms). Every decision of the rule is Allowed, and its fields DryRun and WouldDeny say what it would
// have been; see [limit.Decision]. Metrics count the outcomes would_allow and would_deny instead of allowed
// and denied. If a call that decides, such as [Rule.Allow], fails, the error is only counted, and the request
// is allowed without a charge. Calls that decide nothing do return errors, for example [Rule.Refund],
// [Rule.Reset], [Rule.ChargeUsed] and [Hold.Extend].
//
// In [Limiter.AllowAll] and [Limiter.TakeAll] the other rules are charged all or none, as if the rule on
// a dry run were not there. If the other rules grant the request, the rule on a dry run is asked after them,
// within the same deadline, and charged by itself if the cost fits. If they deny the request, the rule on a dry
// run is not asked, because the request does not happen: its decision is HeldBack, and not counted. A request of
// such a rule does not count toward [MaxTogether].
//
// Instances of a fleet may differ in this option; all of them charge the same counts.
func DryRun() RuleOption {
	return option.Always(func(c *ruleConfig) { c.dryRun = true })
}

// IsDryRun reports whether the rule is on a dry run and never denies; see [DryRun].
func (r *Rule) IsDryRun() bool { return r.config.dryRun }

// isDryRun reports whether a request's rule is on a dry run.
func (q Request) isDryRun() bool { return q.Rule.config.dryRun }

// decideBesideDryRuns is decideTogether if some rules are on a dry run.
func (l *Limiter) decideBesideDryRuns(ctx context.Context, requests []Request, grants Grants) ([]limit.Decision, error) {
	enforced := slices.DeleteFunc(slices.Clone(requests), Request.isDryRun)
	var enforcedGrants Grants
	if grants != nil {
		enforcedGrants = make(Grants, len(enforced))
	}
	// Both groups of rules share one deadline (law 7). It is not set on the context itself: its end would
	// then count as an error of the caller, who has not cancelled anything (law 6).
	rest := remote.Rest(ctx, time.Now().Add(l.config.deadline))
	decided, err := l.decideTogether(ctx, enforced, enforcedGrants)
	if err != nil {
		return nil, err
	}
	granted := len(enforced) == 0 || decided[0].Allowed
	decisions := make([]limit.Decision, len(requests))
	var dry errgroup.Group
	dry.SetLimit(MaxTogether) // they are counted nowhere else
	for i, q := range requests {
		switch {
		case !q.isDryRun():
			decisions[i], decided = decided[0], decided[1:]
			if grants != nil {
				grants[i], enforcedGrants = enforcedGrants[0], enforcedGrants[1:]
			}
		case !granted:
			decisions[i] = q.Rule.heldBack(limit.TierLocal)
			decisions[i].DryRun = true
		case grants == nil:
			dry.Go(func() error { decisions[i], _ = q.Rule.AllowN(rest, q.Key, q.Cost); return nil }) // a rule on a dry run returns no errors
		default:
			dry.Go(func() error { grants[i], decisions[i] = q.takeDry(rest); return nil })
		}
	}
	_ = dry.Wait()
	return decisions, nil
}

// takeDry takes units for a rule on a dry run, by itself. Such a rule returns no errors.
func (q *Request) takeDry(ctx context.Context) (g Grant, d limit.Decision) {
	switch {
	case q.Hold != 0:
		g.Hold, d, _ = q.Rule.Hold(ctx, q.Key, q.Cost, q.Hold)
	case q.Rule.slotTTL != 0:
		g.Slot, d, _ = q.Rule.Acquire(ctx, q.Key, q.Cost)
	default:
		d, _ = q.Rule.AllowN(ctx, q.Key, q.Cost)
	}
	return g, d
}
