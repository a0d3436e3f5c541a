package tiered

import (
	"context"
	"time"

	"github.com/tierlimit/tierlimit/breaker"
	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// Acquire acquires units of a limit of [limit.Concurrent] for a key, and returns them as a slot. If the
// units are not free now, the decision is a denial, and the slot is nil. Release the slot when its units
// are no longer used.
//
// A slot belongs to this process, which renews it in Redis. If the process dies, its units are free
// after [SlotTTL]; if it is paused for that long, it loses the slot. Code that uses a slot for long
// should check [Slot.Held] before each step, or stop when [Slot.Lost] is closed.
//
// Acquire returns within the limiter's deadline. It does not return earlier if ctx ends, because then
// nobody would know whether the units were acquired. In that case the units are given back, which may take the
// deadline once more, and the error is ctx's. If Redis does not answer, the units are denied unless the rule's outage
// policy is [Allow]. While Redis is lost, the outage policy decides. Under [Approximate], a process keeps the slots
// that it holds, even beyond SlotTTL, and acquires units up to its share of the limit. Under [Deny] it acquires
// none, and loses its slots after SlotTTL.
//
// Errors are those of [Rule.AllowN]. In addition, the error wraps [limit.ErrNotForLimit] if the rule's
// limit is not a limit of limit.Concurrent.
func (r *Rule) Acquire(ctx context.Context, key string, units int64) (*Slot, limit.Decision, error) {
	var q question
	q.begin(r, key, units, lua.Take)
	slots, d, err := q.acquire(ctx, 1)
	err = q.end(&d, err)
	switch {
	case slots != nil:
		return slots[0], d, nil
	case d.Allowed: // on a dry run
		return r.newSlot(callKey{}), d, nil
	}
	return nil, d, err
}

// acquire acquires up to count slots, each with the question's units. It returns the decision about the
// last slot. A Peek acquires none.
func (q *question) acquire(ctx context.Context, count int64) ([]*Slot, limit.Decision, error) {
	r := q.rule
	if err := r.checkSlots(ctx, q.key.original, q.cost); err != nil {
		return nil, limit.Decision{}, err
	}
	l := r.limiter
	l.roundOfSlots()
	var d limit.Decision
	if q.remembered(&d, l.now()) {
		return nil, d, nil
	}
	if q.operation == lua.Peek {
		d, err := q.peekSlots(ctx)
		return nil, d, err
	}
	own, d, ok := q.reserveSlots(count)
	if !ok {
		return nil, d, nil
	}
	if own > 0 {
		count = own / q.cost
	}
	slots, reply, err := q.acquireInRedis(ctx, own, count)
	switch {
	case err == nil:
		return q.acquired(ctx, slots, &reply)
	case !l.leavesToPolicy(err):
		return nil, limit.Decision{}, err
	}
	slot, d := q.acquireAlone(err)
	if slot == nil {
		return nil, d, nil
	}
	return []*Slot{slot}, d, nil
}

// acquireInRedis asks Redis to decide, and returns the slots that it granted. Then it calls unreserveSlots for own
// units.
func (q *question) acquireInRedis(ctx context.Context, own, count int64) (slots []*Slot, reply remote.Reply, err error) {
	defer q.unreserveSlots(own)
	l, s := q.rule.limiter, q.shard()
	if !s.Breaker.Closed() {
		return nil, reply, breaker.ErrOpen
	}
	ctx, entered, err := l.enterSlots(ctx, l.config.deadline, q)
	if err != nil {
		return nil, reply, err
	}
	e := q.entry()
	e.Count = count
	sent := l.slotNow()
	err = remote.ErrNoAnswer // unless Decide returns, see leaveSlots
	defer func() { slots = q.leaveSlots(entered[0], sent, &reply, err) }()
	reply, err = s.Decide(context.WithoutCancel(ctx), e)
	return nil, reply, err
}

// enterSlots registers, for each question, that an entry is about to be sent that changes what this
// process holds of the question's key. It returns a record for each question, or nil for a question that
// acquires no slot. While one of the keys is in doubt, enterSlots waits, within the given time. Meanwhile
// it registers none of the others, because no statement is sent about a key in doubt while an entry for the
// key is registered. The caller must send the entries with the returned context, which gives them the
// rest of the time (law 7).
func (l *Limiter) enterSlots(ctx context.Context, within time.Duration, questions ...*question) (context.Context, []*local.Held[*Rule], error) {
	until := time.Now().Add(remote.TimeLeft(ctx, within))
	for rest := ctx; ; rest = remote.Rest(ctx, until) {
		entered, wait := l.tryEnter(questions)
		switch {
		case wait == nil:
			return rest, entered, nil
		case l.closed.Load(): // it was open when the call was checked
			return ctx, nil, limit.ErrClosed
		}
		select {
		case <-wait: // closed when the key is no longer in doubt
		case <-time.After(time.Until(until)):
			return ctx, nil, remote.LateBy(ctx, remote.ErrInDoubt)
		case <-l.ctx.Done():
			return ctx, nil, remote.LateBy(ctx, limit.ErrClosed)
		}
	}
}

func (l *Limiter) tryEnter(questions []*question) (entered []*local.Held[*Rule], wait <-chan struct{}) {
	entered = make([]*local.Held[*Rule], len(questions))
	for i, q := range questions {
		if q.rule.slotTTL == 0 {
			continue
		}
		if entered[i], wait = l.slots.table.Enter(q.heldKey(), q.rule, q.rule.slotTTL); wait == nil {
			continue
		}
		for _, h := range entered {
			if h != nil {
				h.Unchanged(l.now(), -1)
			}
		}
		return nil, wait
	}
	return entered, nil
}

func (q *question) heldKey() local.HeldKey { return q.rule.heldKey(&q.key) }

func (r *Rule) heldKey(key *callKey) local.HeldKey {
	return local.HeldKey{Rule: r.name, Key: string(key.inRedis())}
}

// leaveSlots registers the reply to an entry, or the error err instead of one, and returns the slots that
// were granted. If they are lost already, because this process was paused, the reply becomes a denial.
//
// It must be called even if a hook of the client panics while the entry is sent: while an entry is registered,
// no other change of the key's slots is sent to Redis.
func (q *question) leaveSlots(h *local.Held[*Rule], sent int64, reply *remote.Reply, err error) (slots []*Slot) {
	r, l := q.rule, q.rule.limiter
	now := l.now()
	switch {
	case err != nil && outage.MayBeCharged(err):
		h.Unknown(now, l.unsettledUntil(now, l.config.deadline))
	case err != nil:
		h.Unchanged(now, -1)
	case reply.Granted == 0:
		h.Unchanged(now, reply.Remaining)
	default:
		kept := q.key.kept()
		all := make([]*local.Slot[*Rule], reply.Granted/q.cost)
		for i := range all {
			slot := r.newSlot(kept)
			if r.config.policy == Deny {
				slot.local.EndInTime() // Redis gives its units to others when its time is over
			}
			slots, all[i] = append(slots, slot), &slot.local
		}
		h.Granted(now, l.slotsTill(sent, r.slotTTL), reply.Remaining, q.cost, all...)
		if !slots[0].local.Held(now) {
			reply.Status, reply.Granted = remote.Denied, 0
			return nil
		}
	}
	return slots
}

// acquired returns the results of acquire after Redis has answered.
func (q *question) acquired(ctx context.Context, slots []*Slot, reply *remote.Reply) ([]*Slot, limit.Decision, error) {
	if err := ctx.Err(); err != nil && len(slots) > 0 {
		for _, slot := range slots {
			slot.Release()
		}
		return nil, limit.Decision{}, err
	}
	var d limit.Decision
	q.fromRedis(&d, reply)
	d.ChargedAt = 0 // slots are released, not refunded
	return slots, d, nil
}

// slotsDenied sets the RetryAfter of a denial of slots to acquireAgain. Redis's answer is the time until
// the first of the holders' records may expire, but units are usually released much earlier.
func (r *Rule) slotsDenied(d *limit.Decision) {
	if r.slotTTL != 0 && !d.Allowed && !d.HeldBack {
		d.RetryAfter = acquireAgain
	}
}

// acquireAlone decides without Redis; err is the reason. Unless Redis is lost or the policy is Allow,
// the decision is a denial: the answer may merely be late, and units that were granted here would
// exceed the limit. A Peek gets no slot.
func (q *question) acquireAlone(err error) (*Slot, limit.Decision) {
	r, s := q.rule, q.shard()
	if q.operation != lua.Peek {
		s.Missed(err)
	}
	d := q.slotDenial(s.TierWithout(err), 0)
	switch {
	case r.config.policy == Deny:
		d.RetryAfter = outage.ProbeEvery
		return nil, d
	case r.config.policy != Allow && s.Breaker.Closed():
		return nil, d
	}
	if q.operation == lua.Peek {
		d.Remaining = min(q.roomAlone(), r.limit.Quota())
		if d.Allowed = d.Remaining >= q.cost; d.Allowed {
			d.RetryAfter = 0
		}
		return nil, d
	}
	slot := r.newSlot(q.key.kept())
	d.Allowed, d.Remaining = r.limiter.slots.table.GrantAlone(r.limiter.now(), q.heldKey(), r, r.slotTTL, q.slotShare(), q.cost, &slot.local)
	if !d.Allowed {
		return nil, d
	}
	d.Remaining = min(d.Remaining, r.limit.Quota())
	d.Granted, d.RetryAfter = q.cost, 0
	return slot, d
}

// slotShare returns this process's share of the limit at present.
func (q *question) slotShare() local.Share {
	o := q.shard().OutageOf(q.rule.inOutage)
	return local.Share{Quota: q.rule.limit.Quota(), Outage: o.Number, Fleet: o.Fleet, Any: q.rule.config.policy == Allow}
}

// roomAlone returns how many more units this process may hold within its share of the limit.
func (q *question) roomAlone() int64 {
	l := q.rule.limiter
	return l.slots.table.Room(l.now(), q.heldKey(), q.slotShare())
}

// reserveSlots reserves units of this instance's share, for at most count slots, while Redis may not know
// yet what other instances hold. During that time both Redis and the share must have room (law 11). own
// is 0 if Redis does know. If the share has no room, ok is false, and d is the denial. Otherwise the
// caller must call unreserveSlots once Redis has answered.
func (q *question) reserveSlots(count int64) (own int64, d limit.Decision, ok bool) {
	if !q.slotsSettle() {
		return 0, d, true
	}
	l := q.rule.limiter
	own, room := l.slots.table.Reserve(l.now(), q.heldKey(), q.rule, q.rule.slotTTL, q.slotShare(), q.cost, count)
	if own == 0 {
		return 0, q.slotDenial(q.shard().TierSettling(), room), false
	}
	return own, d, true
}

// slotsSettle reports whether Redis may not know what other instances hold.
func (q *question) slotsSettle() bool {
	s := q.shard()
	return s.Breaker.Closed() && s.Settling(q.rule.inOutage)
}

// slotDenial returns a denial by this instance, which has room for the given number of units only.
func (q *question) slotDenial(tier limit.Tier, room int64) limit.Decision {
	d := q.rule.decision(tier)
	d.Remaining, d.RetryAfter, d.ResetAfter = room, acquireAgain, q.rule.slotTTL
	return d
}

func (q *question) unreserveSlots(own int64) {
	if own > 0 {
		l := q.rule.limiter
		l.slots.table.Unreserve(l.now(), q.heldKey(), own)
	}
}

// peekSlots decides a Peek that no remembered denial answers.
func (q *question) peekSlots(ctx context.Context) (d limit.Decision, err error) {
	s, err := q.shard(), breaker.ErrOpen
	if s.Breaker.Closed() {
		var reply remote.Reply
		if reply, err = s.Decide(ctx, q.entry()); err == nil {
			q.fromRedis(&d, &reply)
			if q.slotsSettle() {
				d.Remaining = min(d.Remaining, q.roomAlone())
				if d.Allowed && d.Remaining < q.cost {
					return q.slotDenial(s.TierSettling(), d.Remaining), nil
				}
			}
			return d, nil
		}
	}
	if !q.rule.limiter.leavesToPolicy(err) {
		return limit.Decision{}, err
	}
	_, d = q.acquireAlone(err)
	return d, nil
}
