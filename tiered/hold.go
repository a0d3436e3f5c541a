package tiered

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// Hold represents units that are charged in advance for work whose cost is known only when it is done,
// such as the tokens of a language model's answer or the bytes of a response. An estimate is charged when
// the hold is made, like any cost. [Hold.Settle] corrects it to the final cost.
//
// End each hold with Settle or [Hold.Cancel]. If nobody ends it, for example because its process
// died, the rule's [Unsettled] option determines whether its units stay charged or are given back.
//
// A Hold is safe for concurrent use.
type Hold struct {
	rule    *Rule
	key     callKey
	units   int64
	granted int64 // when the units were granted, in the limiter's time
	// grantedIn is the generation of Redis's data in which the units were recorded, or a later one.
	grantedIn uint32
	// local means that the units were granted without Redis; unknown means that Redis may have charged
	// them nevertheless.
	local, unknown bool
	// settledFrom is the limiter's time before which no settlement must be sent, because Redis may still charge
	// the units (law 4); 0: it may be sent at once.
	settledFrom int64

	ends  atomic.Int64 // when the hold ends, in the limiter's time; Redis forgets it no earlier, if it has made it
	ended atomic.Bool  // the hold was settled or cancelled
}

// Hold charges units as [Rule.AllowN] does, for work that may turn out to cost more or less, and
// returns a [Hold] with which to settle them. The Hold is nil if the decision is not Allowed.
//
// Life is how long the hold lasts: a millisecond to a day, or [LifeOfRule]. Choose it longer than the
// work usually takes; [Hold.Extend] prolongs it. Held units leave the window at the same time as other
// units. A key can have 1,000 open holds across the fleet. Further holds are denied until one is settled
// or ends, even if Remaining says that their units are free; RetryAfter is then the time until the first
// hold ends.
//
// Holds are always charged in Redis, and never taken from a lease. Errors and deadline are those of
// AllowN. In addition, errors wrap [limit.ErrInvalidHold] if life is out of range or the rule counts
// denied requests. If Redis's answer is lost and the outage policy does not grant the units, they are
// given back as soon as Redis answers again.
func (r *Rule) Hold(ctx context.Context, key string, units int64, life time.Duration) (*Hold, limit.Decision, error) {
	return r.hold(ctx, key, units, life, lua.Take)
}

// HoldUpTo holds as many of the units as fit, like [Rule.Hold]. The decision is Allowed if at least
// one unit fits, and Granted is the number of units held. RetryAfter is the time until a single unit
// fits. The units may exceed the limit.
func (r *Rule) HoldUpTo(ctx context.Context, key string, units int64, life time.Duration) (*Hold, limit.Decision, error) {
	return r.hold(ctx, key, min(units, r.capacity), life, lua.TakeUpTo)
}

func (r *Rule) hold(ctx context.Context, key string, units int64, life time.Duration, operation int) (*Hold, limit.Decision, error) {
	l := r.limiter
	var q question
	q.begin(r, key, units, operation)
	q.key.hold = l.newHolding(r.lifeOf(life))
	asked := l.now()
	var d limit.Decision
	err := r.checkHold(life)
	if err == nil {
		err = q.decide(ctx, &d)
	}
	h := q.newHold(&d, err, asked)
	r.count(key, &d, err)
	err = r.callerResult(&d, err)
	if h == nil && d.Allowed { // the rule is on a dry run
		h = &Hold{rule: r}
		h.ended.Store(true)
	}
	return h, d, err
}

// checkUsed returns an error if no hold can be settled with that number of units.
func checkUsed(units int64) error {
	if units < 0 || units > lua.MaxUnits {
		return fmt.Errorf("%w: the hold was settled with %d units, must be between 0 and %d", limit.ErrInvalidCost, units, int64(lua.MaxUnits))
	}
	return nil
}

// newHold returns the hold of the units that a decision granted, or nil if there are none. err is the error
// of the call, if there is no decision. newHold gives up units that Redis may hold without the caller's knowledge.
func (q *question) newHold(d *limit.Decision, err error, began int64) *Hold {
	asked := q.key.hold
	if err != nil || d.Granted == 0 {
		if asked.unknown || asked.asked && remote.IsCallers(err) && remote.MayHaveRun(err) {
			q.giveUp()
		}
		return nil
	}
	h := &asked.granted
	h.rule, h.key, h.units, h.granted = q.rule, q.key.kept(), d.Granted, began
	// Read after the units were recorded: if a loss is noticed in between, they are charged too often, not too seldom.
	h.grantedIn = q.rule.limiter.shards.Ledger.Generation()
	h.ends.Store(began + int64(asked.terms.Life))
	if h.local, h.unknown = d.Degraded(), asked.unknown; h.unknown {
		h.settledFrom = q.rule.limiter.notChargedFrom()
	}
	q.rule.counters.holds.change(1, h.units)
	return h
}

// giveUp cancels units that Redis may hold. It does so after the time at which they could still be
// charged (law 4).
func (q *question) giveUp() {
	l := q.rule.limiter
	s := q.rule.cancelling(&q.key, q.cost)
	s.sent, s.recorded = true, true // units that were not granted are not recorded in the ledger
	s.settledFrom = l.notChargedFrom()
	l.holds.put(l, s)
}

// notChargedFrom returns the limiter's time from which Redis charges no hold any more whose answer was lost by
// now (law 4); 0: from now on.
func (l *Limiter) notChargedFrom() int64 {
	if l.config.virtualClock != nil {
		return 0
	}
	return l.now() + int64(l.config.deadline)
}

// holding has the parameters, other than the cost, of a decision that holds units.
type holding struct {
	terms remote.Hold
	// asked means that an entry with these terms was made, so that Redis may have been asked.
	asked bool
	// unknown means that the outage policy decided, and that Redis may hold the units nevertheless.
	unknown bool
	// granted is the Hold that is returned if units are granted. It is part of the holding so that both
	// take one allocation.
	granted Hold
}

// newHolding returns a holding whose ID is, with near certainty, unique in the fleet.
func (l *Limiter) newHolding(life time.Duration) *holding {
	return &holding{terms: remote.Hold{ID: l.holds.lastID.Add(1), Life: life}}
}

// ask turns an entry that charges units into one that holds them, unless h is nil.
func (h *holding) ask(e *remote.Entry) {
	if h == nil {
		return
	}
	e.Hold, h.asked = &h.terms, true
	if e.Operation == lua.TakeUpTo {
		e.Operation = lua.HoldUpTo
	} else {
		e.Operation = lua.Hold
	}
}

// decidedWithout records that the outage policy decided because asking Redis ended with err. Redis may
// hold the units nevertheless.
func (h *holding) decidedWithout(err error) {
	if h != nil {
		h.unknown = outage.MayBeCharged(err)
	}
}

func asksToHold(e *remote.Entry) bool { return e.Operation == lua.Hold || e.Operation == lua.HoldUpTo }

// isInRedis reports whether Redis has charged the units, or may have.
func (h *Hold) isInRedis() bool { return !h.local || h.unknown }

// Units returns the number of units held.
func (h *Hold) Units() int64 { return h.units }

// Settle ends the hold, and corrects its charge to the units that were used. Units that were held and not
// used are given back as if they had never been charged, unless they have left the window by then. Units
// beyond those held are charged now, whether or not they fit. They are debt of the window, up to four
// times the limit. If the hold was granted without Redis, and Redis has been charged for it since, units
// that were not used stay charged there until they leave the window.
//
// Settle takes a trip to Redis. It is not an error if Redis does not answer: the settlement is kept and
// sent until Redis answers, even if ctx has ended, and takes effect only once. At most 16,384 settlements
// wait for each master of a Cluster, or for a single node. If there are more, or the limiter is closed
// before Redis answers, the units that were held stay charged.
//
// A hold can be settled up to ten minutes after its end. If its units were given back before (see
// [GiveBack]), all units that were used are charged now. Errors wrap [limit.ErrHoldEnded] if the hold
// was settled or cancelled before, [limit.ErrInvalidCost] if units is out of range,
// [limit.ErrNilContext], or [limit.ErrClosed]; the hold is then unchanged.
func (h *Hold) Settle(ctx context.Context, units int64) error {
	l := h.rule.limiter
	if err := checkUsed(units); err != nil {
		return err
	}
	switch {
	case l.closed.Load():
		return limit.ErrClosed
	case ctx == nil:
		return limit.ErrNilContext
	}
	if h.ended.Swap(true) {
		if h.units == 0 {
			return nil // a hold of a dry run, which was not charged
		}
		return fmt.Errorf("%w: it was settled or cancelled", limit.ErrHoldEnded)
	}
	h.rule.counters.holds.change(-1, -h.units)
	if l.now() > h.ends.Load() {
		h.rule.counters.holds.late.Add(1)
	}
	s := settlement{Hold: h, used: units}
	if !h.isInRedis() {
		l.record(&s)
		h.rule.counters.holds.settled.Add(1)
		h.rule.unitsCameBack(&s.key)
		return nil
	}
	l.settle(ctx, s)
	return nil
}

// Cancel settles the hold with 0 units, so it gives back all of them. After Settle it does nothing, so
// it may be deferred. It may be called on a nil Hold, as returned with a denial.
func (h *Hold) Cancel(ctx context.Context) error {
	if h == nil || h.ended.Load() {
		return nil
	}
	if err := h.Settle(ctx, 0); err != nil && !h.ended.Load() {
		return err
	}
	return nil
}

// Extend prolongs the hold so that it lasts for life from now on, unless it lasts longer already. It
// charges nothing, and does not change the time when the units leave the window.
//
// Errors wrap [limit.ErrHoldEnded] if the hold was settled or cancelled, has ended and was given back, or was
// lost by Redis; [limit.ErrInvalidHold]; [limit.ErrNilContext]; or [limit.ErrClosed]. Other errors are ctx's own,
// or say why Redis did not answer. After such an error, the hold may or may not have been prolonged.
func (h *Hold) Extend(ctx context.Context, life time.Duration) error {
	r, l := h.rule, h.rule.limiter
	if err := r.checkHold(life); err != nil {
		return err
	}
	life = r.lifeOf(life)
	switch {
	case l.closed.Load():
		return limit.ErrClosed
	case ctx == nil:
		return limit.ErrNilContext
	case h.units == 0: // a hold of a dry run
		return nil
	case h.ended.Load():
		return fmt.Errorf("%w: it was settled or cancelled", limit.ErrHoldEnded)
	}
	now := l.now()
	if h.isInRedis() {
		reply, err := l.shardOf(&h.key).Decide(ctx, remote.Entry{
			Key: string(h.key.name), Rule: r.encoded, Operation: lua.Extend, Cost: 1,
			Hold: &remote.Hold{ID: h.key.hold.terms.ID, Life: life},
		})
		switch {
		case err != nil:
			return fmt.Errorf("extending a hold: %w", err)
		case reply.Status != remote.Allowed && !h.local:
			return fmt.Errorf("%w: its time was over and its units were given back, or Redis has lost it", limit.ErrHoldEnded)
		case reply.Status != remote.Allowed && (now < h.settledFrom || l.now() > h.ends.Load()):
			return nil // Redis may make the hold yet, or may have made and forgotten it: its end is the same as before
		}
	}
	until := now + int64(life)
	for ends := h.ends.Load(); ends < until && !h.ends.CompareAndSwap(ends, until); {
		ends = h.ends.Load()
	}
	return nil
}
