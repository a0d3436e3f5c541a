package tiered

import (
	"context"
	"time"

	"github.com/tierlimit/tierlimit/remote"
)

// DecideBy returns a context with which every decision is made by the time t. It is for a program
// that makes several calls for one request and has a time for all of them together, where the
// limiter's [Deadline] is that of each call. What Redis has not decided by t the rule's outage policy
// does, without an error. With less than 2 ms left, or an eighth of the limiter's deadline if that is
// less, Redis is not asked any more and the policy decides at once. The limiter's deadline counts if it
// comes first; of several times the earliest does.
//
// Such a decision's tier is [limit.TierOverload], and [MissedStats] counts it under OwnTime. It is
// no sign of an outage: it does not open the breaker, nor make the limiter settle, and it shortens no
// trip that others share. (A call with 15/16 of the limiter's deadline counts as one with all of it.)
// Redis may have charged the cost if it was asked; it is not charged a second time then. What is
// granted in this way comes on top of what Redis grants to others at the same time: this instance's share of
// the limit at most, less what it was granted in the window.
//
// The program must choose t, and begin its time when the request has been read. Never derive it from
// what a client sends, such as a deadline: a client that chose it would choose who decides. For
// what a client says there is ctx's own deadline, which ends a call with ctx's error, and decides nothing.
//
// It counts for all calls that ask Redis. Those that change what was charged, such as [Rule.Refund],
// end by then as they do at the limiter's deadline: units that are given back, and holds that are extended,
// when the time is over need a context without it. httplimit and grpclimit do not heed it when they settle a
// request, but each message of a stream does (grpclimit.PerMessage).
// [Limiter.AllowAll] on a Cluster returns by then
// while it takes back what was charged. [Rule.Wait] and [Rule.AcquireWait] do not heed it.
func DecideBy(ctx context.Context, t time.Time) context.Context { return remote.DecideBy(ctx, t) }
