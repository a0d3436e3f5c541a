package tiered

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
	"github.com/tierlimit/tierlimit/local/ledger"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// AllowUpTo grants as much of a cost as fits, and charges exactly that; the decision's Granted is the
// number of units. The decision is Allowed if at least one unit is granted; otherwise RetryAfter is the
// time until a single unit fits. The cost may be larger than the limit.
//
// Errors and deadline are those of [Rule.AllowN].
func (r *Rule) AllowUpTo(ctx context.Context, key string, cost int64) (d limit.Decision, err error) {
	err = r.decide(ctx, &d, key, min(cost, r.capacity), lua.TakeUpTo)
	return d, err
}

// Peek returns what [Rule.AllowN] would decide now, and charges nothing. In an outage it answers
// from this instance's own record. Metrics count decisions, not peeks.
//
// Errors and deadline are those of [Rule.AllowN].
func (r *Rule) Peek(ctx context.Context, key string, cost int64) (d limit.Decision, err error) {
	err = r.decide(ctx, &d, key, cost, lua.Peek)
	return d, err
}

// Refund gives back units of a decision's charge, if the request did not happen or cost less than
// expected. Units that have left the window by now are free already and are not given back twice. d is
// the decision that charged them, with this rule and key. Refund subtracts the units from d.Granted, so
// no unit is given back twice however often Refund is called. Do not refund copies of a decision, nor the
// same decision from several goroutines at once. Do not refund a decision that was made without Redis
// (its ChargedAt is 0) after a window has passed, because Refund cannot see how old it is.
//
// A sliding log gives back the oldest units that still count, so that the rest leaves no earlier than it
// should. A sliding counter and a fixed window give back units of the sub-window in which they were
// charged. GCRA gives back what is left of the charge's own debt, which shrinks with time.
//
// Units of a decision that was made without Redis are taken off what this instance still has to charge
// for the key. If the decision will never be charged, because Redis's answer was lost, other requests'
// units are taken off instead. If the rule's window has been changed since, call Refund on the rule that made the
// decision: the new one has no record of it.
//
// Do not refund units that were charged before the key was reset: other requests' units may then be given
// back instead. If another rule has taken the place of this one since the charge ([Limiter.ChangeRule],
// [Rule.TakeOver]), the refund is made under that rule.
//
// Errors wrap [limit.ErrInvalidRefund], [limit.ErrInvalidKey], [limit.ErrNilContext] or [limit.ErrClosed],
// are ctx's own, or say why Redis could not be reached. In the last two cases, the units stay charged until
// they leave the window, and must not be refunded again. In a server, pass context.WithoutCancel(ctx),
// because a request's context ends when its client goes.
func (r *Rule) Refund(ctx context.Context, key string, d *limit.Decision, units int64) error {
	if err := r.check(ctx, key, 1); err != nil {
		return err
	}
	switch {
	case d == nil:
		return fmt.Errorf("%w: the decision is nil", limit.ErrInvalidRefund)
	case d.DryRun && d.Granted == 0:
		return nil // was allowed without a charge
	case d.Granted == 0:
		return fmt.Errorf("%w: nothing is left of the decision's charge: it charged nothing, or was refunded before", limit.ErrInvalidRefund)
	case units < 1 || units > d.Granted:
		return fmt.Errorf("%w: the refund is %d units, must be between 1 and %d, which is what is left of the charge", limit.ErrInvalidRefund, units, d.Granted)
	}
	k := r.limiter.key(key)
	charged := d.Granted
	d.Granted -= units
	return r.giveBack(ctx, &k, units, charged, d.ChargedAt)
}

// refundAgain is the pause before a refund is sent again because its slot is moving, or there was no room for it.
const refundAgain = 5 * time.Millisecond

// giveBack gives back units of a charge of the given time and cost, in Redis and in this instance's ledger. at is 0 if
// the charge was made without Redis, which then has no such charge. If Redis refuses because the key's slot is moving,
// or too many decisions wait for Redis, nothing was given back, and giveBack asks again until the deadline. It works
// also while the limiter is being closed.
//
// charged is 0 if all units of the charge are given back as if it had never been made. A log then gives back the units
// of the charge itself. If it gave back the oldest, as for a refund, those of the charge would stay in their place. Then
// the units of a key for which charges are undone again and again, as for groups that another request denies, would
// never leave the window.
func (r *Rule) giveBack(ctx context.Context, k *callKey, units, charged, at int64) error {
	s, returned, latest := r.limiter.shardOf(k), units, r.inOutage.Latest()
	inRedis := int64(0)             // units that Redis has given back
	granted := int64(ledger.Oldest) // when the charge was made, in the limiter's time
	isLog := latest.Algorithm.Same(limit.SlidingLog())
	givesOldest := isLog && charged != 0
	if !isLog {
		charged = cmp.Or(charged, units)
	}
	if at != 0 {
		e := remote.Entry{
			Key: string(k.inRedis()), Rule: latest.Encoded, Operation: lua.Refund,
			Cost: units, Charged: charged, Stamp: at,
		}
		until := time.Now().Add(r.limiter.config.deadline)
		asked := r.limiter.now()
		reply, err := s.Decide(ctx, e)
		for (remote.IsMoving(err) || errors.Is(err, remote.ErrNoRoom)) && ctx.Err() == nil && time.Now().Before(until) {
			time.Sleep(refundAgain) // the rest of a slot that moves usually follows in milliseconds
			s, asked = r.limiter.shardOf(k), r.limiter.now()
			reply, err = s.Decide(ctx, e)
		}
		if err != nil {
			return fmt.Errorf("refunding %d units: %w", units, err)
		}
		inRedis = reply.Granted
		// The ledger cannot tell whether the charge is still in the window; Redis can. If the charge is, and Redis lacks
		// it, Redis has lost it. The ledger must not keep it then, because it would be charged again.
		if latest.Algorithm.Same(limit.GCRA()) || reply.Stamp-at >= latest.Limit.Window().Microseconds() {
			returned = inRedis
		}
		// The ledger gives back the same units as Redis. asked is from before Redis read its clock. So granted is too
		// early, if anything, and nothing is taken back that was granted after the charge.
		if !givesOldest {
			granted = asked - max(0, reply.Stamp-at)*int64(time.Microsecond)
		}
	}
	q := r.requestAbout(k)
	if inRedis > 0 {
		r.limiter.shards.ChargeLost(&q) // Redis may have taken the units off what was charged since it lost them
	}
	s.Returned(&q, granted, returned, at == 0)
	r.unitsCameBack(k)
	return nil
}

// Reset makes a key as if it had never been used, in Redis and, for this rule, in this process. Other
// processes, and rules with another limit ([Rule.WithLimit]), may remember a denial for up to a second,
// and spend their leased units. What they give back of a lease is then taken off units that were charged
// since. Slots stay held, and are reported to Redis again: by this process at
// once, by others within a third of their [SlotTTL]. Errors are those of [Rule.Refund].
func (r *Rule) Reset(ctx context.Context, key string) error {
	if err := r.checkCall(ctx, key, 1); err != nil {
		return err
	}
	l := r.limiter
	k := l.key(key)
	if r.lease != nil {
		l.leases.Drop(r.lease, k.hash)
	}
	forget := func() error {
		e := remote.Entry{Key: string(k.inRedis()), Rule: r.encoded, Operation: lua.Forget}
		if _, err := l.shardOf(&k).Decide(ctx, e); err != nil {
			return fmt.Errorf("resetting a key: %w", err)
		}
		return nil
	}
	if err := forget(); err != nil {
		return err
	}
	if r.slotTTL != 0 { // this process reports to Redis again what it still holds
		held := r.heldKey(&k)
		l.slots.table.Doubt(l.now(), func(key local.HeldKey) bool { return key == held })
	} else {
		q := r.requestAbout(&k)
		if charging := l.shardOf(&k).Reset(&q); charging != nil {
			select {
			case <-charging: // at the limiter's deadline at the latest
			case <-ctx.Done():
				return fmt.Errorf("resetting a key: %w", ctx.Err())
			}
			if err := forget(); err != nil {
				return err
			}
		}
	}
	r.unitsCameBack(&k)
	return nil
}
