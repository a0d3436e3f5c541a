package outage

import (
	"errors"
	"time"

	"github.com/tierlimit/tierlimit/breaker"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local/ledger"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// Without decides without Redis, by the rule's outage policy, and sets d. Under any policy, grants are
// recorded in the ledger. They count for other rules and for later policies, and Redis will be charged for
// them.
//
// err is the error of asking Redis. If Redis may have charged the decision nevertheless, the decision is
// not charged there later, because it must be charged at most once (law 3).
func (s *Shard) Without(d *limit.Decision, q *Request, now int64, err error) {
	l, r := s.all, q.Rule
	lost := errors.Is(err, breaker.ErrOpen) // in an outage, this is all that is asked about the error
	if !lost {
		s.Missed(err)
	}
	a := q.account()
	a.Charged = !lost && remote.MayHaveRun(err)
	r.begin(d, s.TierWithout(err))
	switch {
	case r.Policy == Deny:
		d.RetryAfter = ProbeEvery
	case r.Policy == Allow && q.Operation == lua.Peek:
		d.Allowed, d.Remaining = true, r.Limit.Quota()
	case r.Policy == Allow:
		l.Ledger.Add(&a, s.OutageOf(r), now, q.Cost)
		d.Allowed, d.Granted, d.Remaining = true, q.Cost, max(0, r.Limit.Quota()-q.Cost)
	case q.Operation == lua.Peek:
		free, retryAfter := l.Ledger.Free(&a, s.OutageOf(r), now, q.Cost)
		d.Allowed, d.Remaining, d.RetryAfter = free >= q.Cost, free, min(retryAfter, RetryWithin)
	case q.Operation == lua.TakeUpTo:
		granted(d, l.Ledger.TakeUpTo(&a, s.OutageOf(r), now, q.Cost))
	default:
		granted(d, l.Ledger.Take(&a, s.OutageOf(r), now, q.Cost))
	}
	d.Remaining = min(d.Remaining, r.Capacity) // a larger cost is an error
}

// Undo takes back a grant that [Shard.Without] has just made because of err. It is called when another
// decision of the same group is a denial.
func (s *Shard) Undo(q *Request, err error) {
	a := q.account()
	a.Charged = MayBeCharged(err)
	s.all.Ledger.Undo(&a, s.all.Now(), q.Cost, true)
}

// TierWithout returns the tier that decides after err. If Redis answers other calls, a missed deadline
// counts as overload.
func (s *Shard) TierWithout(err error) limit.Tier {
	if s.Breaker.Closed() && s.silence.Load() == nil && errors.Is(err, remote.ErrNoAnswer) {
		return limit.TierOverload
	}
	return limit.TierFallback
}

// Unreadable logs that a key in Redis cannot be read, so it can be neither decided nor charged there.
func (l *Shards) Unreadable(err error) {
	l.Log.Warn("unreadable", "a key in Redis cannot be read; the outage policy decides for it", "error", err)
}

// MayBeCharged reports whether Redis may have charged a decision that ended with an error.
func MayBeCharged(err error) bool {
	return !errors.Is(err, breaker.ErrOpen) && remote.MayHaveRun(err)
}

// RetryWithin is the longest RetryAfter of a decision without Redis. By then Redis may be back, and may
// grant more than this instance's share (law 11).
const RetryWithin = 5 * time.Second

// granted puts the ledger's answer into a decision.
func granted(d *limit.Decision, g ledger.Grant) {
	d.Allowed, d.Granted, d.Remaining, d.RetryAfter = g.Granted > 0, g.Granted, g.Free, min(g.RetryAfter, RetryWithin)
}

// Fetch makes the processor fetch the record of a key from main memory, for Learned.
func (l *Shards) Fetch(q *Request) { l.Ledger.Fetch(q.Hash ^ q.Rule.Salt) }

// Learned records what Redis granted, and how much was free.
func (s *Shard) Learned(q *Request, reply *remote.Reply) {
	a, now := q.account(), s.all.Now()
	known := ledger.Known{Granted: reply.Granted}
	if !s.isUncounted(q.Rule) { // otherwise grants of other instances are missing
		known.Free, known.Capacity, known.Sliding = reply.Remaining, q.Rule.Capacity, q.Rule.Sliding
	}
	if s.all.Ledger.Learn(&a, now, known) {
		s.suspicions.Send() // Redis counts less than was granted to this instance alone
	}
}

// Returned records that units are given back that were granted at a time, which may be [ledger.Oldest].
// withoutRedis says that they were granted without Redis, and need no longer be charged there.
func (s *Shard) Returned(q *Request, granted, units int64, withoutRedis bool) {
	a := q.account()
	s.all.Ledger.Return(&a, s.all.Now(), granted, units, withoutRedis)
}

// Used records units that were used, whether or not they fit. charged says that Redis has charged the
// units, or may have; otherwise they will be charged.
func (s *Shard) Used(q *Request, units int64, charged bool) {
	a := q.account()
	a.Charged = charged
	s.all.Ledger.Add(&a, s.OutageOf(q.Rule), s.all.Now(), units)
	if !charged {
		s.charger.wake.Send()
	}
}

// ChargeAgain has a key charged again with what Redis has lost, and reports whether this includes units that were
// granted at a time, which were on record in the given generation of Redis's data; see [ledger.Ledger.ChargeAgain].
func (l *Shards) ChargeAgain(q *Request, granted int64, generation uint32) bool {
	a := q.account()
	return l.Ledger.ChargeAgain(&a, granted, generation)
}

// ChargeLost has a key charged again with what Redis has lost, as the key's next use would. It must be called before
// units are [Shard.Returned] that Redis gives back even if it has lost them: otherwise they would not be charged again
// either, and so be given back twice.
func (l *Shards) ChargeLost(q *Request) { l.ChargeAgain(q, l.Now(), 0) }
