package tiered

import (
	"context"
	"time"

	"github.com/tierlimit/tierlimit/remote"
)

// DecideBy returns a context with which every decision is made by the time t, in place of the limiter's
// [Deadline] after each call: for a program that makes several calls for one request, and has
// time for all of them together. What Redis has not decided by then the rule's outage policy does,
// without an error; at least 2 ms before t, or an eighth of the limiter's deadline if that is less, Redis is
// not asked any more. The limiter's deadline counts if it comes first. Of several times the earliest
// counts.
//
// The decision's tier is [limit.TierOverload], and [MissedStats] counts it under OwnTime. It is no
// sign of an outage: unless the call had 15/16 of the limiter's deadline it neither opens the breaker nor makes the
// limiter settle, and it never shortens a trip that others share. Redis may have charged the cost if
// it was asked; it is then not charged a second time. Since nothing settles, what is granted so comes
// on top of what Redis grants to others at the same time: in any window, over the fleet, no more than in
// an outage.
//
// The program must choose t, and begin its time when the request has been read. Never derive it from what a client
// sends, such as a deadline: a client that chose it would choose who decides. For what a client says
// there is ctx's own deadline, which ends a call with ctx's error, and decides nothing.
//
// It counts for all calls that ask Redis. Those that change what was charged, such as [Rule.Refund],
// end then as they do at the limiter's deadline. [Limiter.AllowAll] on a Cluster returns by then while
// it takes back what was charged. [Rule.Wait] and [Rule.AcquireWait] ignore it while they wait.
func DecideBy(ctx context.Context, t time.Time) context.Context { return remote.DecideBy(ctx, t) }
