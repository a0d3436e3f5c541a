package remote

import (
	"encoding/binary"
	"slices"
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

// joinedHold is a hold in an entry of several: one of a Hold, with its number of units, or one of a Settle, with
// its number of used units.
type joinedHold struct {
	id    uint64
	units int64
}

// joinHold coalesces two entries that hold units for the same time, or two that settle holds. place is where the
// other's part begins: of a Hold, the number of units before it; of a Settle, its position.
func (e *Entry) joinHold(other *Entry) (place int64, joined bool) {
	place = e.count()
	settles := e.settlesHold() && other.settlesHold()
	holds := e.Operation == lua.Hold && other.Operation == lua.Hold && e.Hold.Life == other.Hold.Life
	if place >= lua.MaxHolds || !settles && !holds {
		return 0, false
	}
	if place == 1 {
		e.joined = append(e.joined, joinedHold{e.Hold.ID, e.Cost})
	}
	e.joined = append(e.joined, joinedHold{other.Hold.ID, other.Cost})
	e.Count = place + 1
	if holds {
		place = e.Cost
		e.Cost += other.Cost
	}
	return place, true
}

// mixes reports whether the other entry, if joined, would be a hold of other units than the last one of this entry.
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

// alone returns the entry of the i-th of the holds that have joined.
func (e *Entry) alone(i int) Entry {
	one := *e
	one.Cost, one.Count, one.joined = e.joined[i].units, 0, nil
	return one
}

// settlesHold reports whether the entry settles a hold.
func (e *Entry) settlesHold() bool { return e.Operation == lua.Settle && e.Hold.ID != 0 }

// packJoined appends the holds of an entry of several, in the script's format.
func (e *Entry) packJoined(packed []byte) []byte {
	for _, h := range e.joined {
		packed = appendInt(binary.BigEndian.AppendUint64(packed, h.id), h.units, 7)
	}
	return packed
}

// apart has the replies to the holds of an entry of which not all were made, one to each, and the number of
// units of those before each.
type apart struct {
	replies []Reply
	before  []int64
}

// decodeApart decodes the answers to such an entry. It returns their length in bytes, or 0 if one is invalid.
func (r *Reply) decodeApart(e *Entry, text string) (used int) {
	n, before := len(e.joined), int64(0)
	*r = Reply{apart: &apart{make([]Reply, n), make([]int64, n)}}
	for i := range n {
		own, one := &r.apart.replies[i], e.alone(i)
		length := own.decode(&one, text[used:])
		if length == 0 {
			return 0
		}
		used += length
		r.apart.before[i] = before
		before += one.Cost
	}
	return used
}

// each returns the replies to the holds of an entry of which not all were made, otherwise none.
func (r *Reply) each() []Reply {
	if r.apart == nil {
		return nil
	}
	return r.apart.replies
}

// of returns the reply to the hold that begins behind so many units.
func (a *apart) of(before int64) []Reply {
	i, _ := slices.BinarySearch(a.before, before)
	return a.replies[i : i+1]
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
