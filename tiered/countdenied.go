package tiered

import (
	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// CountDenied makes denied units count too, as in limiters that increment a counter first and compare
// afterwards. Once a request was denied in a window, all later requests are denied until the window ends,
// whatever their cost. If a limit is raised in the middle of a window, units that were denied before
// still count. CountDenied is for programs that must decide exactly as such a limiter does. A flood of
// denied requests then causes denials for everybody else who shares the key, which is why other rules do
// not count in this way.
//
// CountDenied needs [limit.FixedWindow] and a window that is not of the calendar, and cannot be combined
// with leases or holds. Costs may exceed the limit, up to [limit.MaxQuota]; such requests are denied, and counted.
// Their RetryAfter is the time until the window ends, or 0 if it has no units, although they are denied then, too.
// The decision's Used is the count. Redis counts the denied units; while the outage policy decides
// without Redis, denied units are not counted. Remembered denials are not counted either; see
// [DenialLife]. For several requests use [Limiter.AllowEach], because CountDenied cannot be combined with
// all-or-none calls ([Limiter.AllowAll]). A call that waits ([Rule.Wait]) is counted at each attempt, and
// its cost must not exceed the limit.
func CountDenied() RuleOption {
	return option.Always(func(c *ruleConfig) { c.countDenied = true })
}

// mayCountDenied returns an error if the rule cannot count denied units.
func (c *ruleConfig) mayCountDenied(lim limit.Limit, a limit.Algorithm) error {
	switch {
	case !a.Same(limit.FixedWindow()) || lim.IsCalendar():
		return option.Invalid("CountDenied with the algorithm %v and the limit %v; it needs limit.FixedWindow and a limit that is not a calendar limit", a, lim)
	case c.leased > 0:
		return option.Invalid("CountDenied and a lease of %d %%; set only one of them", c.leased)
	case c.holdLife != 0:
		return option.Invalid("CountDenied and a HoldLife of %v; set only one of them, because a rule with CountDenied cannot hold units", c.holdLife)
	case c.unsettled != Keep:
		return option.Invalid("CountDenied and Unsettled of %v; set only one of them, because a rule with CountDenied cannot hold units", c.unsettled)
	}
	return nil
}

// replyUnder turns a reply into the reply under a limit of quota units. Redis was given a limit that is never
// reached, so it counts all units that are asked for.
func replyUnder(quota int64, reply *remote.Reply, cost, count int64, operation int) remote.Reply {
	judged := *reply
	used := limit.MaxQuota - reply.Remaining
	judged.Remaining = max(0, quota-used)
	charged := reply.Fitted * cost // as long as Redis's limit is not reached; Granted lacks callers that have left
	fit := min(charged, max(0, quota-(used-charged)))
	switch operation {
	case lua.Peek:
		judged.Fitted = min(1, judged.Remaining/cost)
	case lua.TakeUpTo:
		judged.Granted, judged.Fitted = min(fit, reply.Granted), min(1, fit)
	default:
		judged.Fitted = fit / cost
		judged.Granted = min(judged.Fitted*cost, reply.Granted)
	}
	if judged.Fitted >= count {
		return judged
	}
	judged.Status, judged.RetryAfter = remote.Denied, reply.ResetAfter
	if judged.Remaining == 0 {
		judged.NextAfter = reply.ResetAfter
	}
	return judged
}
