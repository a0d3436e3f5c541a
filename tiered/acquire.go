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
	q := r.ask(key, units, lua.Take)
	slots, d, err := q.acquire(ctx, 1)
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

// acquire acquires up to count slots of the question's units each. The decision is that of the last
// of count.
func (q *question) acquire(ctx context.Context, count int64) ([]*Slot, limit.Decision, error) {
	r := q.rule
	if err := r.checkSlots(ctx, q.key.said, q.cost); err != nil {
		return nil, limit.Decision{}, err
	}
	l := r.limiter
	l.roundOfSlots()
	if d, ok := r.remembered(q.key.hash, l.now(), q.cost); ok {
		return nil, d, nil
	}
	if d, denied := q.deniedSettling(); denied {
		return nil, d, nil
	}
	s, err := q.shard(), breaker.ErrOpen
	if s.Breaker.Closed() {
		var entered []*local.Held[*Rule]
		if entered, err = l.enterSlots(ctx, l.config.deadline, q); err == nil {
			e := q.entry()
			e.Count = count
			sent := l.slotNow()
			var reply remote.Reply
			reply, err = s.Decide(context.WithoutCancel(ctx), e)
			slots := q.leaveSlots(entered[0], sent, &reply, err)
			if err == nil {
				return q.acquired(ctx, slots, &reply)
			}
		}
	}
	if !l.outage(err) {
		return nil, limit.Decision{}, err
	}
	slot, d := q.acquireAlone(err)
	if slot == nil {
		return nil, d, nil
	}
	return []*Slot{slot}, d, nil
}

// enterSlots takes note that entries are about to be sent which change what is held of the questions'
// keys, as far as they are to be acquired: of the others it returns nil. While one of the keys is in
// doubt it waits, as long as it may, with none entered: what Redis is told of the others waits for
// those that are.
func (l *Limiter) enterSlots(ctx context.Context, within time.Duration, questions ...*question) ([]*local.Held[*Rule], error) {
	for until := time.Now().Add(remote.TimeLeft(ctx, within)); ; {
		entered, wait := l.tryEnter(questions)
		if wait == nil {
			return entered, nil
		}
		if err := l.awaitTold(wait, until); err != nil {
			return nil, remote.LateBy(ctx, err)
		}
	}
}

func (l *Limiter) tryEnter(questions []*question) (entered []*local.Held[*Rule], wait <-chan struct{}) {
	entered = make([]*local.Held[*Rule], len(questions))
	for i, q := range questions {
		if q.rule.slots == nil {
			continue
		}
		if entered[i], wait = l.slots.table.Enter(q.heldKey(), q.rule, q.rule.slots.ttl); wait == nil {
			continue
		}
		for _, h := range entered {
			if h != nil {
				h.Left(l.now(), -1)
			}
		}
		return nil, wait
	}
	return entered, nil
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

func (q *question) heldKey() local.HeldKey {
	return local.HeldKey{Rule: q.rule.name, Key: string(q.key.inRedis())}
}

// leaveSlots takes note of what has come of an entry, and returns the slots that it was granted.
func (q *question) leaveSlots(h *local.Held[*Rule], sent int64, reply *remote.Reply, err error) (slots []*Slot) {
	r, l := q.rule, q.rule.limiter
	now := l.now()
	switch {
	case err != nil && outage.MayBeCharged(err):
		h.Unknown(now, l.unsettledUntil(now))
	case err != nil:
		h.Left(now, -1)
	case reply.Granted == 0:
		h.Left(now, reply.Remaining)
	default:
		kept := q.key.kept()
		all := make([]*local.Slot[*Rule], reply.Granted/q.cost)
		for i := range all {
			slot := &Slot{rule: r, key: kept}
			slots, all[i] = append(slots, slot), &slot.local
		}
		h.Granted(now, l.slotsTill(sent, r.slots.ttl), reply.Remaining, q.cost, all...)
	}
	return slots
}

// acquired is what has come of slots that Redis was asked for.
func (q *question) acquired(ctx context.Context, slots []*Slot, reply *remote.Reply) ([]*Slot, limit.Decision, error) {
	if err := ctx.Err(); err != nil && len(slots) > 0 {
		for _, slot := range slots {
			slot.Release()
		}
		return nil, limit.Decision{}, err
	}
	d := q.rule.fromRedis(reply, q.cost, lua.Take)
	d.ChargedAt = 0 // is not refunded
	q.rule.slotsDenied(&d)
	if len(slots) > 0 && !slots[0].Held() { // this process stood still: they are lost already
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
// That is a denial unless Redis counts as lost: an answer may merely be late, and what is granted
// here would come on top of the limit.
func (q *question) acquireAlone(err error) (*Slot, limit.Decision) {
	r, s := q.rule, q.shard()
	s.Missed(err)
	d := r.decision(s.TierWithout(err))
	d.RetryAfter, d.ResetAfter = acquireAgain, r.slots.ttl
	share := func(h *local.Held[*Rule]) int64 { return h.Share(r.limit.Quota(), sharing(s)) }
	switch {
	case r.config.policy == Allow:
		share = func(*local.Held[*Rule]) int64 { return math.MaxInt64 }
	case r.config.policy == Deny:
		d.RetryAfter = outage.ProbeEvery
		return nil, d
	case s.Breaker.Closed():
		return nil, d
	}
	slot := &Slot{rule: r, key: q.key.kept()}
	d.Allowed, d.Remaining = r.limiter.slots.table.GrantAlone(r.limiter.now(), q.heldKey(), r, r.slots.ttl, share, q.cost, &slot.local)
	if !d.Allowed {
		return nil, d
	}
	d.Remaining = min(d.Remaining, r.limit.Quota())
	d.Granted, d.RetryAfter = q.cost, 0
	return slot, d
}

// sharing says among how many instances a limit is divided now.
func sharing(s *outage.Shard) local.Sharing {
	o := s.Outage()
	return local.Sharing{Outage: o.Number, Fleet: o.Fleet}
}

// roomAlone is how many units more this process may hold by its share of the limit.
func (q *question) roomAlone() int64 {
	l := q.rule.limiter
	return l.slots.table.Room(l.now(), q.heldKey(), q.rule.limit.Quota(), sharing(q.shard()))
}

// deniedSettling denies what this instance's share has no room for, while Redis does not know yet
// what other instances hold (law 11).
func (q *question) deniedSettling() (d limit.Decision, denied bool) {
	r, s := q.rule, q.shard()
	if r.config.policy == Allow || !s.Breaker.Closed() || !s.Uncounted(r.name, r.slots.ttl) {
		return d, false
	}
	room := q.roomAlone()
	if room >= q.cost {
		return d, false
	}
	d = r.decision(s.TierSettling())
	d.Remaining, d.RetryAfter, d.ResetAfter = room, acquireAgain, r.slots.ttl
	return d, true
}

// resetSlots follows a reset of a key in Redis.
func (r *Rule) resetSlots(key *callKey) {
	held := local.HeldKey{Rule: r.name, Key: string(key.inRedis())}
	r.limiter.slots.table.Doubt(r.limiter.now(), func(key local.HeldKey) bool { return key == held })
	r.unitsCameBack(key)
}
