package tiered

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// Slot represents units of a limit of [limit.Concurrent] that are held until [Slot.Release]. Its
// methods are safe for concurrent use. They may be called on a nil Slot, which is not held.
type Slot struct {
	rule     *Rule
	key      callKey
	local    local.Slot[*Rule]
	dry      chan struct{} // not nil if the rule is on a dry run, and only Release ends the slot; Release closes it
	released atomic.Bool
}

// newSlot returns a slot of a key. On a dry run, there is no key if the units did not fit.
func (r *Rule) newSlot(key callKey) *Slot {
	s := &Slot{rule: r, key: key}
	if r.config.dryRun {
		s.dry = make(chan struct{})
	}
	return s
}

// Release gives the units back. It returns once Redis has answered, or at the limiter's deadline or after a
// third of [SlotTTL], whichever is earlier. If Redis cannot be reached, or the slot is about to expire, the
// release is sent in the background. Releasing a slot again, or releasing a lost slot, does nothing.
func (s *Slot) Release() {
	if s == nil || s.released.Swap(true) {
		return
	}
	if s.dry != nil {
		close(s.dry)
		if s.key.name == "" {
			return
		}
	}
	r := s.rule
	l := r.limiter
	shard := l.shardOf(&s.key)
	within := min(l.config.deadline, r.slotTTL/renewals) // renewed slots last longer than that
	by := time.Now().Add(within)                         // before now: the entry takes effect no later than the table assumes
	now := l.now()
	h, units, entered := s.local.Release(now, l.unsettledUntil(now, within), shard.Breaker.Closed())
	if entered {
		s.release(shard, h, units, by)
	}
	r.unitsCameBack(&s.key)
}

// release asks Redis to release the units of the slot by the given time, and registers the reply.
func (s *Slot) release(shard *outage.Shard, h *local.Held[*Rule], units int64, by time.Time) {
	l := s.rule.limiter
	reply, err := remote.Reply{}, remote.ErrNoAnswer // unless Decide returns, see leaveSlots
	defer func() { l.released(h, units, &reply, err) }()
	reply, err = shard.Decide(remote.DecideBy(context.Background(), by), remote.Entry{
		Key: string(s.key.inRedis()), Rule: s.rule.encoded, Operation: lua.Refund, Cost: units,
	})
}

// released registers the reply to an entry that releases units, or the error err instead of one.
func (l *Limiter) released(h *local.Held[*Rule], units int64, reply *remote.Reply, err error) {
	switch now := l.now(); {
	case err != nil:
		h.Unknown(now, l.unsettledUntil(now, l.config.deadline))
	case reply.Granted != units: // Redis knew of fewer units, so it has lost data
		h.Unknown(now, now)
	default:
		h.Unchanged(now, reply.Remaining)
	}
}

// Held reports whether the slot is still held, that is, neither released nor expired. Held only reads a
// clock, and is correct even directly after this process was paused, before any timer has fired. Call it
// before each step that must not be done without the slot. If the slot's rule is on a dry run ([DryRun]), the slot is
// held until it is released, because a dry run stops nothing.
func (s *Slot) Held() bool {
	switch {
	case s == nil:
		return false
	case s.dry != nil:
		return !s.released.Load()
	}
	return s.local.Held(s.rule.limiter.now())
}

// Lost returns a channel that is closed when the slot is lost or released. It may be closed some
// milliseconds after Held has become false, or up to a tenth of a second after that if the process holds
// slots of tens of thousands of keys.
func (s *Slot) Lost() <-chan struct{} {
	switch {
	case s == nil:
		return new(local.Slot[*Rule]).Ended() // closed, because a nil slot is not held
	case s.dry != nil:
		return s.dry
	}
	return s.local.Ended()
}

// SlotTTL sets how long slots of a limit of [limit.Concurrent] outlive their process, from 100 ms to 10
// minutes; the default is 10 seconds. Each process renews its slots three times per TTL, up to 128 keys
// in a batch. A process that cannot renew its slots because it is paused loses them after the TTL;
// [Slot.Held] then returns false. A process that cannot reach Redis loses its slots if the rule's outage
// policy is [Deny], and keeps them under [Approximate] and [Allow].
//
// A short TTL frees the slots of a crashed process sooner; a long one lets processes keep their
// slots through longer pauses.
func SlotTTL(d time.Duration) RuleOption {
	return option.Set(func(c *ruleConfig) { c.slotTTL = d },
		d >= 100*time.Millisecond && d <= longestSlotTTL && d%time.Microsecond == 0,
		"SlotTTL of %v, must be between 100ms and %v, and a whole number of microseconds", d, longestSlotTTL)
}

const (
	defaultSlotTTL = 10 * time.Second
	longestSlotTTL = lua.LongestSlot * time.Microsecond
	// slotDenialLife is how long a denial is remembered. It is short because slots may be released
	// at any time.
	slotDenialLife = 25 * time.Millisecond
	// acquireAgain is the interval at which to ask again for slots that other processes hold, because
	// Redis does not report when they are released.
	acquireAgain = 50 * time.Millisecond
)

// mayHaveSlots returns an error if the rule has an option that means nothing for a concurrency limit.
func (c *ruleConfig) mayHaveSlots(lim limit.Limit) error {
	meaningless := ""
	switch {
	case !c.algorithm.IsAutomatic() && c.algorithm != limit.Concurrency():
		meaningless = fmt.Sprintf("Use(%v)", c.algorithm)
	case c.need.Stated():
		meaningless = "Need"
	case c.leasedWithin:
		meaningless = "LeaseWithinLimit"
	case c.leased > 0:
		meaningless = "Lease"
	case c.shadow > 0:
		meaningless = "Shadow"
	case c.countDenied:
		meaningless = "CountDenied"
	case c.holdLife != 0:
		meaningless = "HoldLife"
	case c.unsettledSet:
		meaningless = "Unsettled"
	}
	return option.Check(meaningless == "", "%s cannot be combined with the limit %v, which has no window", meaningless, lim)
}
