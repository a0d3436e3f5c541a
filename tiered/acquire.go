package tiered

import (
	"context"
	"math"
	"time"

	"github.com/tierlimit/tierlimit/breaker"
	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// Acquire acquires units of a limit of [limit.Concurrent] for a key, if they are free now, and
// returns them as a slot; if not, the decision says so, and slot is nil. Release the slot when the
// units are no longer used.
//
// A slot belongs to this process, which tells Redis that it is alive. If the process dies, its
// units are free after [SlotTTL]; if it is paused, or cannot reach Redis, for that long, it has
// lost the slot. Code that uses a slot for long should check [Slot.Held] before each step, or end
// when [Slot.Lost] is closed.
//
// Acquire returns within the limiter's deadline. It does not return earlier if ctx ends, because it
// would not be known whether the units were acquired; they are given back then, and the error is
// ctx's. If Redis does not answer, units are denied, unless the rule's outage policy is [Allow];
// while Redis counts as lost, the policy decides: under [Approximate] a process keeps what it
// holds, and acquires up to its share of the limit.
//
// Errors are those of [Rule.AllowN], and [limit.ErrNotForLimit] for a rule with another limit.
func (r *Rule) Acquire(ctx context.Context, key string, units int64) (*Slot, limit.Decision, error) {
	k := r.limiter.key(key)
	slots, d, err := r.acquire(ctx, &k, units, 1)
	r.count(key, &d, err)
	if err = r.tell(&d, err); err != nil {
		return nil, d, err
	}
	if slots == nil {
		return r.onDryRun(nil, &d), d, nil
	}
	return slots[0], d, nil
}

// onDryRun returns the slot for a decision, which on a dry run always has one.
func (r *Rule) onDryRun(slot *Slot, d *limit.Decision) *Slot {
	if slot == nil && d.Allowed {
		return &Slot{rule: r, dry: true}
	}
	return slot
}

// checkSlots is check for acquiring.
func (r *Rule) checkSlots(ctx context.Context, key string, units int64) error {
	if r.slots == nil {
		return r.notHeld()
	}
	return r.checkCall(ctx, key, units)
}

// acquire acquires up to count slots of the given units each. The decision is that of the last of
// count.
func (r *Rule) acquire(ctx context.Context, key *callKey, units, count int64) ([]*Slot, limit.Decision, error) {
	if err := r.checkSlots(ctx, key.said, units); err != nil {
		return nil, limit.Decision{}, err
	}
	l := r.limiter
	l.roundOfSlots()
	if d, ok := r.remembered(key.hash, l.now(), units); ok {
		return nil, d, nil
	}
	s := l.shardOf(key)
	if d, denied := r.deniedSettling(s, key, units); denied {
		return nil, d, nil
	}
	err := breaker.ErrOpen
	if s.Breaker.Closed() {
		var h *local.Held
		if h, err = r.enter(key, l.config.deadline); err == nil {
			e := r.entry(key, units, lua.Take)
			e.Count = count
			sent := l.slotNow()
			var reply remote.Reply
			reply, err = s.Decide(context.WithoutCancel(ctx), e)
			slots := r.leave(h, key, units, sent, &reply, err)
			if err == nil {
				return r.acquired(ctx, slots, &reply, units)
			}
		}
	}
	if !l.outage(err) {
		return nil, limit.Decision{}, err
	}
	slot, d := r.acquireAlone(s, key, units, err)
	if slot == nil {
		return nil, d, nil
	}
	return []*Slot{slot}, d, nil
}

// enter records that an entry is about to be sent which changes what is held of a key. While the
// key is in doubt it waits, for at most within.
func (r *Rule) enter(key *callKey, within time.Duration) (*local.Held, error) {
	h, wait := r.limiter.slots.table.Enter(r.heldKey(key), r, r.slots.ttl)
	for until := time.Now().Add(within); wait != nil; h, wait = r.limiter.slots.table.Enter(r.heldKey(key), r, r.slots.ttl) {
		if err := r.limiter.awaitTold(wait, until); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// awaitTold waits until a key is no longer in doubt.
func (l *Limiter) awaitTold(told <-chan struct{}, until time.Time) error {
	late := time.NewTimer(time.Until(until))
	defer late.Stop()
	select {
	case <-told:
		return nil
	case <-late.C:
		return remote.ErrInDoubt
	case <-l.ctx.Done():
		return limit.ErrClosed
	}
}

func (r *Rule) heldKey(key *callKey) local.HeldKey {
	return local.HeldKey{Rule: r.name, Key: string(key.inRedis())}
}

// leave records the outcome of an entry, and returns the slots that were granted.
func (r *Rule) leave(h *local.Held, key *callKey, units, sent int64, reply *remote.Reply, err error) (slots []*Slot) {
	l := r.limiter
	now := l.now()
	switch {
	case err != nil && outage.MayBeCharged(err):
		h.Unknown(now, l.unsettledUntil(now))
	case err != nil:
		h.Left(now, -1)
	case reply.Granted == 0:
		h.Left(now, reply.Remaining)
	default:
		kept := key.kept()
		all := make([]*local.Slot, reply.Granted/units)
		for i := range all {
			slot := &Slot{rule: r, key: kept}
			slots, all[i] = append(slots, slot), &slot.local
		}
		h.Granted(now, l.slotsTill(sent, r.slots.ttl), reply.Remaining, units, all...)
	}
	return slots
}

// acquired returns the result of asking Redis for slots.
func (r *Rule) acquired(ctx context.Context, slots []*Slot, reply *remote.Reply, units int64) ([]*Slot, limit.Decision, error) {
	if err := ctx.Err(); err != nil && len(slots) > 0 {
		for _, slot := range slots {
			slot.Release()
		}
		return nil, limit.Decision{}, err
	}
	d := r.fromRedis(reply, units, lua.Take)
	d.ChargedAt = 0 // cannot be refunded
	r.slotsDenied(&d)
	if len(slots) > 0 && !slots[0].Held() { // this process was paused: they are lost already
		d.Allowed, d.Granted, d.RetryAfter = false, 0, acquireAgain
		return nil, d, nil
	}
	return slots, d, nil
}

// slotsDenied sets a denial's RetryAfter to when to ask again, which is not when the holders'
// records expire, since they will give units back earlier.
func (r *Rule) slotsDenied(d *limit.Decision) {
	if r.slots != nil && !d.Allowed && !d.HeldBack {
		d.RetryAfter = acquireAgain
	}
}

// acquireAlone decides without Redis, because of err.
//
// It denies unless Redis counts as lost: the answer may merely be late, and units granted here
// would exceed the limit.
func (r *Rule) acquireAlone(s *outage.Shard, key *callKey, units int64, err error) (*Slot, limit.Decision) {
	l := r.limiter
	s.Missed(err)
	d := r.decision(s.TierWithout(err))
	d.RetryAfter, d.ResetAfter = acquireAgain, r.slots.ttl
	share := func(h *local.Held) int64 { return h.Share(r.limit.Quota(), sharing(s)) }
	switch {
	case r.config.policy == Allow:
		share = func(*local.Held) int64 { return math.MaxInt64 }
	case r.config.policy == Deny:
		d.RetryAfter = outage.ProbeEvery
		return nil, d
	case s.Breaker.Closed():
		return nil, d
	}
	slot := &Slot{rule: r, key: key.kept()}
	d.Allowed, d.Remaining = l.slots.table.GrantAlone(l.now(), r.heldKey(key), r, r.slots.ttl, share, units, &slot.local)
	if !d.Allowed {
		return nil, d
	}
	d.Remaining = min(d.Remaining, r.limit.Quota())
	d.Granted, d.RetryAfter = units, 0
	return slot, d
}

// sharing says among how many instances a limit is divided now.
func sharing(s *outage.Shard) local.Sharing {
	o := s.Outage()
	return local.Sharing{Outage: o.Number, Fleet: o.Fleet}
}

// deniedSettling denies units that do not fit into this instance's share, while Redis does not know
// yet what other instances hold (law 11).
func (r *Rule) deniedSettling(s *outage.Shard, key *callKey, units int64) (d limit.Decision, denied bool) {
	l := r.limiter
	if r.config.policy == Allow || !s.Breaker.Closed() || !s.Uncounted(r.name, r.slots.ttl) {
		return d, false
	}
	room := l.slots.table.Room(l.now(), r.heldKey(key), r.limit.Quota(), sharing(s))
	if room >= units {
		return d, false
	}
	d = r.decision(s.TierSettling())
	d.Remaining, d.RetryAfter, d.ResetAfter = room, acquireAgain, r.slots.ttl
	return d, true
}

// slotsAnswered remembers a denial: for a short time, as units come back at any time.
func (r *Rule) slotsAnswered(e *remote.Entry, reply *remote.Reply, sent int64) {
	r.remember(e, reply, sent, e.Cost, min(r.config.denialLife, slotDenialLife))
}

// resetSlots follows a reset of a key in Redis.
func (r *Rule) resetSlots(key *callKey) {
	l := r.limiter
	held := r.heldKey(key)
	l.slots.table.Doubt(l.now(), func(owner any, key string) bool { return key == held.Key && owner.(*Rule).name == r.name })
	r.unitsCameBack(key)
}
