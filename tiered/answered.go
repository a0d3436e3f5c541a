package tiered

import (
	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// observer adapts a rule to the [remote.Observer] interface for its entries.
type observer Rule

// Answering fetches the record in which a grant will be kept.
func (o *observer) Answering(e *remote.Entry) {
	if r := (*Rule)(o); r.slotTTL == 0 {
		r.limiter.shards.Fetch(&outage.Request{Rule: r.inOutage, Hash: e.Hash})
	}
}

// Answered remembers an answer of Redis, once for all callers that share the entry. It remembers a denial
// for the next requests, and a grant for a possible outage. sent is the limiter's time before the entry
// was sent. Waits in the reply are counted from sent, so they end no later than on Redis's clock (law 2).
func (o *observer) Answered(shard int, e *remote.Entry, reply *remote.Reply, sent int64) {
	if e.Operation > lua.Peek && !asksToHold(e) {
		return
	}
	r := (*Rule)(o)
	if r.slotTTL != 0 {
		r.remember(e, reply, sent, e.Cost, min(r.config.denialLife, slotDenialLife)) // units may be released at any time
		return
	}
	onlyLooked := false
	if r.config.countDenied {
		judged := replyUnder(r.limit.Quota(), reply, e.Cost, max(1, e.Count), e.Operation)
		// A peek at units that are used up is no denied request yet. If it were remembered, the next request would be
		// denied without being counted, and a peek would look as if the count were above the limit.
		onlyLooked = e.Operation == lua.Peek && limit.MaxQuota-reply.Remaining <= r.limit.Quota()
		reply = &judged
	}
	if reply.Granted > 0 || reply.Status == remote.Denied {
		r.limiter.shards.At(shard).Learned(&outage.Request{Rule: r.inOutage, Hash: e.Hash, Key: remote.UserKey(e.Key)}, reply)
	}
	if onlyLooked {
		return
	}
	cost := e.Cost
	if e.Operation == lua.TakeUpTo || e.Operation == lua.HoldUpTo {
		cost = 1
	}
	if asksToHold(e) && reply.Remaining >= cost {
		return // a denial was due to too many holds, which says nothing about other requests
	}
	r.remember(e, reply, sent, cost, r.config.denialLife)
}

// fromRedis turns the reply to a single request into a decision.
func (q *question) fromRedis(d *limit.Decision, reply *remote.Reply) {
	r := q.rule
	r.begin(d, limit.TierRedis)
	if r.config.countDenied {
		d.Used = limit.MaxQuota - reply.Remaining
		judged := replyUnder(r.limit.Quota(), reply, q.cost, 1, q.operation)
		reply = &judged
	}
	d.Allowed, d.HeldBack, d.Granted = reply.Status == remote.Allowed, reply.Status == remote.HeldBack, reply.Granted
	d.Remaining, d.RetryAfter, d.ResetAfter = reply.Remaining, reply.RetryAfter, reply.ResetAfter
	if d.Granted > 0 {
		d.ChargedAt = reply.Stamp
	}
	r.slotsDenied(d)
}

// begin sets d to what all decisions of a tier have in common. Decisions are written in place: copying one
// takes longer than looking up a denial, since the processor must wait for the fields just written.
func (r *Rule) begin(d *limit.Decision, tier limit.Tier) {
	*d = limit.Decision{}
	d.Tier, d.Limit, d.Algorithm = tier, r.limit.Quota(), r.algorithm
}

// decision returns a new decision with these fields.
func (r *Rule) decision(tier limit.Tier) (d limit.Decision) {
	r.begin(&d, tier)
	return d
}

// heldBack returns the decision for a rule that does not deny while another rule of the same call does.
func (r *Rule) heldBack(tier limit.Tier) limit.Decision {
	d := r.decision(tier)
	d.HeldBack = true
	return d
}
