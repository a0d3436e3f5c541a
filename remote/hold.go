package remote

import (
	"encoding/binary"
	"time"

	"github.com/tierlimit/tierlimit/lua"
)

// Hold names units that are charged for something whose cost is known only when it is over
// (see lua/hold.lua).
//
// A Hold or HoldUpTo is answered like a Take or a TakeUpTo. It is denied as well, although the
// units are free, while lua.MaxHolds holds of the key are open; RetryAfter then says when one of
// them ends. A Settle or an Extend is Allowed if the hold is there, else Denied, and nothing
// has changed: so a Settle may be sent again until it was answered. What it gave back or charged
// is Granted; Fitted is 2 if the hold had been given back before, so that all was charged. An Extend's Life is how long the hold lasts from then on; a hold that was given back
// cannot be extended.
//
// A Settle of the ID 0 charges units that were used without having been held. It may be sent once
// only.
type Hold struct {
	// ID tells the hold from all others of the fleet.
	ID uint64
	// Life is when a Hold, HoldUpTo or Extend makes it end, from the moment at which Redis
	// decides; at most lua.LongestHold.
	Life time.Duration
}

// GivesBack returns the rule for instances that give back at its end what is held and was not
// settled: each entry of it first does so.
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

// usesHolds reports whether the script is given the key of what is held.
func (e *Entry) usesHolds() bool {
	return e.Rule.givesBack || e.Operation >= lua.Hold || e.Operation == lua.Forget
}

// holdsKey is the key that tells what is held of the entry's.
func (e *Entry) holdsKey() string {
	if e.holdsName == "" {
		e.holdsName = holdsKey(e.redisKey())
	}
	return e.holdsName
}

// hasDeadline reports whether the entry must not be charged after its deadline (law 4): a
// settlement may come late, since it is of something that has happened, and is charged once.
func (e *Entry) hasDeadline() bool {
	return e.Operation != lua.Settle || e.Hold.ID == 0
}

// joinedHold is a hold that shares an entry with another one: of the same cost, or to be settled with
// so many units.
type joinedHold struct {
	id   uint64
	used int64
}

// joinHold makes one entry of two that hold the same number of units for the same time, or that both
// settle what was held. place is where the other's part of it begins.
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

// settlesHold reports whether the entry is the settlement of what was held before.
func (e *Entry) settlesHold() bool { return e.Operation == lua.Settle && e.Hold.ID != 0 }

// packJoined appends the holds behind the first one.
func (e *Entry) packJoined(packed []byte) []byte {
	for _, h := range e.joined {
		packed = binary.BigEndian.AppendUint64(packed, h.id)
		if e.Operation == lua.Settle {
			packed = appendInt(packed, h.used, 7)
		}
	}
	return packed
}

// decodeSettled reads what is the same of a Settle and an Extend.
func (r *Reply) decodeSettled(e *Entry, outcome, told int64) {
	r.settled(outcome)
	if e.Operation == lua.Settle {
		r.Granted = told
	} else {
		r.Life = microseconds(told)
	}
}

// settled says whether the hold was there, and whether it had been given back before.
func (r *Reply) settled(outcome int64) {
	r.Status, r.Fitted = Denied, outcome
	if outcome > 0 {
		r.Status = Allowed
	}
}
