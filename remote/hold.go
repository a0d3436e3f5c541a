package remote

import (
	"encoding/binary"
	"time"

	"github.com/tierlimit/tierlimit/lua"
)

// Hold identifies units that are charged in advance for work whose cost is known only when it is done
// (see lua/hold.lua).
//
// The reply to a Hold or HoldUpTo is like that to a Take or TakeUpTo. In addition, while lua.MaxHolds
// holds of the key are open, it is a denial even if the units are free; RetryAfter is then the time
// until one of them ends. The reply to a Settle or Extend is Allowed if Redis knows the hold, and
// otherwise Denied, with nothing changed. So a Settle may be sent until it is answered. Its reply has
// in Granted the units that were given back or charged; Fitted is 2 if the hold had been given back
// before, so that all used units were charged. The reply to an Extend has in Life how long the hold
// lasts from then on. A hold that was given back cannot be extended.
//
// A Settle with ID 0 charges units that were used without having been held. It must not be sent more
// than once.
type Hold struct {
	// ID is unique in the fleet.
	ID uint64
	// Life is how long the hold lasts after Redis has decided the Hold, HoldUpTo or Extend; at most
	// lua.LongestHold.
	Life time.Duration
}

// GivesBack returns a copy of the rule for instances that give back holds which end without having
// been settled. Each entry of the copy first gives back those that have ended.
func (r *Rule) GivesBack() *Rule {
	other := *r
	other.givesBack = true
	other.packed[0] |= lua.GivesBack
	other.packedText = string(other.packed[:])
	if r.calendar != nil {
		other.calendar = &calendar{limit: r.calendar.limit}
	}
	return &other
}

// usesHolds reports whether the script needs the key of the holds.
func (e *Entry) usesHolds() bool {
	return e.Rule.givesBack || e.Operation >= lua.Hold || e.Operation == lua.Forget
}

// holdsKey returns the Redis key of the holds of the entry's key.
func (e *Entry) holdsKey() string {
	if e.holdsName == "" {
		e.holdsName = holdsKey(e.redisKey())
	}
	return e.holdsName
}

// hasDeadline reports whether the entry must not be charged after its deadline (law 4). A settlement may
// be late, because it is about work that was done, and takes effect only once.
func (e *Entry) hasDeadline() bool {
	return e.Operation != lua.Settle || e.Hold.ID == 0
}

// joinedHold is a hold in an entry of several: one of a Hold, which all have the same cost, or one of a
// Settle, with its number of used units.
type joinedHold struct {
	id   uint64
	used int64
}

// joinHold coalesces two entries that hold the same number of units for the same time, or two that
// settle holds. place is the position of the other's hold.
func (e *Entry) joinHold(other *Entry) (place int64, joined bool) {
	place = e.count()
	switch {
	case place >= lua.MaxHolds || e.Operation != other.Operation:
		return 0, false
	case e.Operation == lua.Hold && e.Cost == other.Cost && e.Hold.Life == other.Hold.Life, e.settlesHold() && other.settlesHold():
		e.joined = append(e.joined, joinedHold{other.Hold.ID, other.Cost})
		e.Count = place + 1
		return place, true
	}
	return 0, false
}

// settlesHold reports whether the entry settles a hold.
func (e *Entry) settlesHold() bool { return e.Operation == lua.Settle && e.Hold.ID != 0 }

// packJoined appends the holds after the first one, in the script's format.
func (e *Entry) packJoined(packed []byte) []byte {
	for _, h := range e.joined {
		packed = binary.BigEndian.AppendUint64(packed, h.id)
		if e.Operation == lua.Settle {
			packed = appendInt(packed, h.used, 7)
		}
	}
	return packed
}

// decodeSettled decodes the answer to a Settle or Extend into the reply.
func (r *Reply) decodeSettled(e *Entry, outcome, told int64) {
	r.settled(outcome)
	if e.Operation == lua.Settle {
		r.Granted = told
	} else {
		r.Life = microseconds(told)
	}
}

// settled sets Status and Fitted: whether Redis knew the hold, and whether it had been given back
// before.
func (r *Reply) settled(outcome int64) {
	r.Status, r.Fitted = Denied, outcome
	if outcome > 0 {
		r.Status = Allowed
	}
}
