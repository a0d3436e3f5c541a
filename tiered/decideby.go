package tiered

import (
	"context"
	"time"

	"github.com/tierlimit/tierlimit/remote"
)

// DecideBy returns a context with which every decision is made by the time t. Use it if a program makes
// several calls for one request and has a time limit for all of them together; the limiter's [Deadline]
// applies to each call by itself. If Redis has not decided by t, the rule's outage policy decides,
// without an error. If less than 2 ms are left, or less than an eighth of the limiter's deadline if that
// is shorter, Redis is not asked and the policy decides at once. The limiter's deadline still applies if
// it comes first. If DecideBy is applied several times, the earliest time counts.
//
// If the policy decides because of t, the decision's tier is [limit.TierOverload], and [MissedStats]
// counts the decision under OwnTime. Such a decision is not a sign of an outage: it neither opens the
// breaker nor makes the limiter settle, and it does not shorten a trip that other calls share. (If t
// leaves a call at least 15/16 of the limiter's deadline, the call counts as one without DecideBy.) If
// Redis was asked, it may have charged the cost; the cost is then not charged a second time. Units that
// are granted in this way come on top of those that Redis grants to others at the same time. They are at
// most this instance's share of the limit, less the units that it was granted in the window.
//
// The program must choose t by itself, counted from the moment when it has read the request. Never derive
// t from data that a client sends, such as a deadline: the client would then choose who decides. For a
// client's deadline use ctx's own deadline, which ends a call with ctx's error and decides nothing.
//
// DecideBy applies to all calls that ask Redis. Calls that change an earlier charge, such as
// [Rule.Refund] or [Hold.Extend], fail at t as they do at the limiter's deadline; to make them after t, pass a
// context without DecideBy. On a Cluster, [Limiter.AllowAll] returns by t even if it is still taking back
// charges. [Rule.Wait] and [Rule.AcquireWait] ignore t, and so do httplimit and grpclimit when they settle a
// request; grpclimit.PerMessage applies it to each message of a stream.
func DecideBy(ctx context.Context, t time.Time) context.Context { return remote.DecideBy(ctx, t) }
