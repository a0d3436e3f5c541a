package remote

import (
	"math"
	"time"

	"github.com/tierlimit/tierlimit/lua"
)

// Hold identifies units that are charged in advance for work whose cost is known only when it is done
// (see lua/hold.lua).
//
// The reply to a Hold or HoldUpTo is like that to a Take or TakeUpTo, with one addition: while lua.MaxHolds
// holds of the key are open, it is a denial even if the units are free, and RetryAfter is the time until one of
// the holds ends. The reply to a Settle or Extend is Allowed if Redis knows the hold; otherwise it is Denied,
// and nothing has changed. So a Settle may be sent until it is answered. Granted in its reply is the number of
// units that were given back or charged; Fitted is 2 if the hold had already been given back, so that all used
// units were charged. Life in the reply to an Extend is how long the hold lasts from then on. A hold that was
// given back cannot be extended.
//
// A Settle with ID 0 charges units that were used without a hold. It must not be sent more than once.
type Hold struct {
	// ID is unique in the fleet. It is at most MaxHoldID.
	ID uint64
	// Life is how long the hold lasts, counted from the moment at which Redis decides the Hold, HoldUpTo or
	// Extend. It is at most lua.LongestHold.
	Life time.Duration
}

// MaxHoldID is the largest ID of a hold. The next number marks lines of the list of holds that are free.
const MaxHoldID = math.MaxUint64 - 1

// GivesBack returns a copy of the rule for instances that give back holds which end without having been
// settled. Each entry of the copy first gives back the holds that have ended.
func (r *Rule) GivesBack() *Rule {
	other := *r
	other.packed[0] |= lua.GivesBack
	other.packedText = string(other.packed[:])
	if r.calendar != nil {
		other.calendar = &calendar{limit: r.calendar.limit}
	}
	return &other
}

// usesHolds reports whether the script needs the key of the holds.
func (e *Entry) usesHolds() bool {
	return e.Rule.packed[0]&lua.GivesBack > 0 || e.Operation >= lua.Hold || e.Operation == lua.Forget
}

// joinedHold is one hold in an entry of several. units is the number of units to hold in a Hold, and the number
// of used units in a Settle.
type joinedHold struct {
	id    uint64
	units int64
}

// joinHold coalesces two entries that hold units for the same time, or two that settle holds.
func (e *Entry) joinHold(other *Entry) (joined bool) {
	count := e.count()
	settles := e.settlesHold() && other.settlesHold()
	holds := e.Operation == lua.Hold && other.Operation == lua.Hold && e.Hold.Life == other.Hold.Life
	if count >= lua.MaxHolds || !settles && !holds {
		return false
	}
	if count == 1 {
		e.joined = append(e.joined, joinedHold{e.Hold.ID, e.Cost})
	}
	e.joined = append(e.joined, joinedHold{other.Hold.ID, other.Cost})
	e.Count = count + 1
	if holds {
		e.Cost += other.Cost
	}
	return true
}

// mixes reports whether other, if it joined, would be a hold with another cost than this entry's last hold.
func (e *Entry) mixes(other *Entry) bool {
	if e.Operation != lua.Hold {
		return false
	}
	last := e.Cost
	if n := len(e.joined); n > 0 {
		last = e.joined[n-1].units
	}
	return last != other.Cost
}

// alone returns an entry for the i-th of the joined holds only.
func (e *Entry) alone(i int) Entry {
	one := *e
	one.Cost, one.Count, one.joined = e.joined[i].units, 0, nil
	return one
}

// settlesHold reports whether the entry settles a hold. Such an entry has no deadline (law 4), because it is about
// work that was done, and takes effect only once.
func (e *Entry) settlesHold() bool { return e.Operation == lua.Settle && e.Hold.ID != 0 }

// decodeApart decodes the answers to such an entry. It returns their total length in bytes, or 0 if one is
// invalid.
func (r *Reply) decodeApart(e *Entry, text string) (used int) {
	apart := make([]Reply, len(e.joined))
	*r = Reply{apart: &apart}
	for i := range apart {
		one := e.alone(i)
		length := apart[i].decode(&one, text[used:])
		if length == 0 {
			return 0
		}
		used += length
	}
	return used
}

// each returns the replies to the single holds if not all holds of the entry were made, and otherwise nil.
func (r *Reply) each() []Reply {
	if r.apart == nil {
		return nil
	}
	return *r.apart
}

// settled sets Status and Fitted: they say whether Redis knew the hold, and whether it had already been given
// back.
func (r *Reply) settled(outcome int64) {
	r.Status, r.Fitted = Denied, outcome
	if outcome > 0 {
		r.Status = Allowed
	}
}
