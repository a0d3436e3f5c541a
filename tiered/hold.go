package tiered

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// Hold is units that are charged for something whose cost is known only when it is over: the
// tokens of a language model's answer, the bytes of a response. They were charged when they were
// held, like any cost; [Hold.Settle] makes the charge what it was in the end.
//
// End each hold with Settle or [Hold.Cancel]. One that nobody ends, because its process has
// died, counts as what was held, or is given back at its end: as the rule says, see [Unsettled].
//
// It is safe for concurrent use.
type Hold struct {
	rule    *Rule
	key     callKey
	units   int64
	granted int64 // the limiter's time
	// local: Redis does not know of it, or of one that was decided without it, may not.
	local, unknown bool

	mu    sync.Mutex // guards the fields below
	ends  int64      // the limiter's time
	ended bool       // settled or cancelled
}

// Hold charges units as [Rule.AllowN] does, for something that may turn out to cost more or less. The
// Hold is nil if the decision is not Allowed.
//
// Life is how long the hold lasts, from a millisecond to a day, or [LifeOfRule]. Choose it longer than the
// work usually takes; [Hold.Extend] prolongs it. The units leave the window as others do, also while they
// are held. A key can have 1,000 open holds over the whole fleet. While it has as many, further holds are
// denied, even if Remaining says that their units are free: until the first one is settled, or ends
// (RetryAfter).
//
// What is held is charged in Redis, and never taken from a lease. Errors and deadline are those of
// AllowN; and [limit.ErrInvalidHold], for a life out of range or a rule that counts what is
// denied. If the answer of Redis is lost, and the units are not granted without it, they are given
// back as soon as Redis answers again.
func (r *Rule) Hold(ctx context.Context, key string, units int64, life time.Duration) (*Hold, limit.Decision, error) {
	return r.hold(ctx, key, units, life, lua.Take)
}

// HoldUpTo is [Rule.Hold] for as many of the units as fit: see Granted of the decision, which is
// Allowed if that is anything at all. RetryAfter is when a single unit fits. The units may be more
// than the limit.
func (r *Rule) HoldUpTo(ctx context.Context, key string, units int64, life time.Duration) (*Hold, limit.Decision, error) {
	return r.hold(ctx, key, min(units, r.capacity), life, lua.TakeUpTo)
}

func (r *Rule) hold(ctx context.Context, key string, units int64, life time.Duration, operation int) (*Hold, limit.Decision, error) {
	l := r.limiter
	q := r.ask(key, units, operation)
	q.key.hold = l.newHolding(r.lifeOf(life))
	asked := l.now()
	err := r.checkHold(life)
	var d limit.Decision
	if err == nil {
		d, err = q.decide(ctx)
	}
	if err != nil {
		r.abandon(&q.key, units, err)
	}
	r.count(key, &d, err)
	var h *Hold
	if err == nil {
		h = r.newHold(&q.key, units, &d, asked)
	}
	if err = r.tell(&d, err); err != nil {
		return nil, d, err
	}
	if h == nil && d.Allowed { // on a dry run
		h = &Hold{rule: r, ended: true}
	}
	return h, d, nil
}

// checkUsed finds what is wrong with what a hold is said to have taken.
func checkUsed(units int64) error {
	if units < 0 || units > lua.MaxUnits {
		return fmt.Errorf("%w: settled with %d, must be between 0 and %d", limit.ErrInvalidCost, units, int64(lua.MaxUnits))
	}
	return nil
}

// newHold makes a hold of what was granted, nil if that is nothing.
func (r *Rule) newHold(key *callKey, asked int64, d *limit.Decision, began int64) *Hold {
	if d.Granted == 0 {
		if key.hold.unknown {
			r.giveUp(key, asked)
		}
		return nil
	}
	h := &key.hold.granted
	h.rule, h.key, h.units, h.granted = r, key.kept(), d.Granted, began
	h.ends = began + int64(key.hold.terms.Life)
	h.local, h.unknown = d.Degraded(), key.hold.unknown
	r.metrics.holds.opened(h.units)
	return h
}

// abandon sees to it that nothing is held for a caller who was not told of it.
func (r *Rule) abandon(key *callKey, units int64, err error) {
	if remote.IsCallers(err) && remote.MayHaveRun(err) {
		r.giveUp(key, units)
	}
}

// giveUp cancels what Redis may hold, once it can no longer come to hold it (law 4).
func (r *Rule) giveUp(key *callKey, units int64) {
	l := r.limiter
	s := r.cancelling(key, units)
	s.sent, s.recorded = true, true // what nobody was granted is on no record
	if l.config.virtualClock == nil {
		s.after = l.now() + int64(l.config.deadline)
	}
	l.holds.put(l, s)
}

// Units is how many units are held.
func (h *Hold) Units() int64 { return h.units }

// Settle ends the hold, and changes what is charged for it to the units that were used. Units that were
// held and not used are given back, at the time at which they were charged, as if they had never been: if
// they have left the window by then there is nothing to give back. Units beyond what was held are charged
// now, whether or not they fit: they are debt of the window, up to four times the limit.
//
// It takes a trip to Redis. If Redis does not answer, the settlement is kept, and made when it
// does, once however often it is sent: so there is no error. At most 16,384 settlements wait; for
// further ones, and for those that still wait when the limiter is closed, what was held stays charged. If
// ctx ends, the settlement is made all the same.
//
// A hold may be settled for ten minutes after its end. If it was given back before (see
// [GiveBack]), all that it took is charged now. Errors wrap [limit.ErrHoldEnded], if it was settled or
// cancelled before; [limit.ErrInvalidCost], of less than 0 units; or [limit.ErrClosed]. They change nothing.
func (h *Hold) Settle(ctx context.Context, units int64) error {
	l := h.rule.limiter
	if err := checkUsed(units); err != nil {
		return err
	}
	if l.closed.Load() {
		return limit.ErrClosed
	}
	ends, ok := h.end()
	if !ok {
		if h.units == 0 {
			return nil // a dry run's, which was not charged
		}
		return fmt.Errorf("%w: it was settled or cancelled", limit.ErrHoldEnded)
	}
	h.rule.metrics.holds.closed(h.units)
	if l.now() > ends {
		h.rule.metrics.holds.late.Add(1)
	}
	s := settlement{rule: h.rule, key: h.key, held: h.units, used: units, granted: h.granted, ends: ends, unknown: h.unknown}
	if h.local && !h.unknown {
		s.local = true
		l.settleLocally(&s)
		return nil
	}
	l.settle(ctx, s)
	return nil
}

// Cancel gives back all that is held: what it is for does not happen. After Settle it does nothing, so
// it may be deferred. It is otherwise like Settle of 0 units.
func (h *Hold) Cancel(ctx context.Context) error {
	if h.hasEnded() {
		return nil
	}
	if err := h.Settle(ctx, 0); err != nil && !h.hasEnded() {
		return err
	}
	return nil
}

func (h *Hold) hasEnded() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ended
}

// end ends the hold, once, and returns when it would have ended.
func (h *Hold) end() (ends int64, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return 0, false
	}
	h.ended = true
	return h.ends, true
}

// Extend makes the hold last for life from now on, unless it lasts longer already: for what takes
// longer than was thought. It charges nothing, and does not change when the units leave the window.
//
// Errors wrap [limit.ErrHoldEnded], if it was settled or cancelled, or came to its end and was
// given back; [limit.ErrInvalidHold]; [limit.ErrClosed]; are ctx's own; or say why Redis did not
// answer. After one of the last two the hold lasts as long as before, or as asked.
func (h *Hold) Extend(ctx context.Context, life time.Duration) error {
	r, l := h.rule, h.rule.limiter
	if err := r.checkHold(life); err != nil {
		return err
	}
	life = r.lifeOf(life)
	switch {
	case l.closed.Load():
		return limit.ErrClosed
	case h.units == 0: // a dry run's
		return nil
	case h.hasEnded():
		return fmt.Errorf("%w: it was settled or cancelled", limit.ErrHoldEnded)
	}
	now := l.now()
	if !h.local || h.unknown {
		reply, err := l.shardOf(&h.key).Decide(ctx, remote.Entry{
			Key: string(h.key.name), Rule: r.encoded, Operation: lua.Extend, Cost: 1,
			Hold: &remote.Hold{ID: h.key.hold.terms.ID, Life: life},
		})
		switch {
		case err != nil:
			return fmt.Errorf("extending a hold: %w", err)
		case reply.Status != remote.Allowed && !h.local:
			return fmt.Errorf("%w: it came to its end and was given back, or Redis has lost it", limit.ErrHoldEnded)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ends = max(h.ends, now+int64(life))
	return nil
}
