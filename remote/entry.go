package remote

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// Charge is units of the past: granted without asking Redis, and that long ago when the
// entry is made. What the entry then waits makes them younger than they are: they leave
// late rather than early.
//
// Under GCRA send what is left of the units as one Charge of age 0, computed at the
// instance's own part of the rate: debts of several instances add up.
type Charge struct {
	Units int64
	Age   time.Duration
}

// ChargeRepeats is for how long after it was first sent a charge may be sent again with
// the same sequence: so long Redis remembers that it has been made, or until the units
// have left the window.
const ChargeRepeats = 10 * time.Minute

// Entry asks for one decision, or for several of the same cost one after another.
type Entry struct {
	// Key is the Redis key; or a [UserKey], if the rule was named (see [Rule.Named]).
	Key string
	// Hash is for the rule's [Asker].
	Hash uint64
	// Rule is what to hold it to.
	Rule *Rule
	// Operation is one of the operations of package lua; 0 is Take.
	Operation int
	// Cost is the number of units to charge, between 1 and the rule's capacity; or
	// to refund. Of Slots it is how many units the rule's process holds, or lua.SlotsAsKnown.
	Cost int64
	// Count is for how many decisions of that cost to take, one after another; 0 is
	// 1. Only Take has counts; and a Hold or a Settle that others have joined in a batch.
	Count int64
	// Charged and Stamp tell a refund of which charge: its cost, less what was
	// refunded of it already, and its Reply.Stamp.
	Charged, Stamp int64
	// Charges are the units of a Charge, in any order; an instance's ledger has at most 17.
	// Of those that still count, all are charged, whether or not they fit, up to four times
	// the limit. Cost and Count mean nothing to it.
	Charges []Charge
	// Marker and Sequence make a Charge happen once: Marker is the instance that granted
	// the units, Sequence a number, from 1 on, that it raises with each new charge to the
	// key, and repeats when it does not know whether a charge was made. Up to the largest
	// that was charged, nothing is charged. (On a Cluster, Key must have a hash tag, as
	// those of a Keyspace do.)
	Marker   string
	Sequence int64
	// NotAfter, in µs on Redis's clock, is when the entry must no longer be
	// charged; 0 for always.
	NotAfter int64
	// Group, if not 0, ties neighbouring entries of the same group together: all
	// are charged or none. Their keys must differ, and on a Cluster share a slot. At
	// most 65,535.
	Group int
	// Lease has the terms of a lease, whose Cost is how many units are wanted; 0 if the
	// old one is to end and no more.
	Lease *Lease
	// Hold is the hold that a Hold, HoldUpTo, Settle or Extend is about. Of a Settle, Cost is
	// how many units were used; 0 gives all back.
	Hold *Hold

	name      string // the Redis key, once it was made
	leaseName string // the key of what is out on lease
	holdsName string // the key of what is held

	joined []joinedHold // of a Hold or a Settle with a Count, those behind the first one
}

// Lease is the terms on which units are charged in advance for one process, which may
// then spend them by itself (see lua/lease.lua). The reply has the units in Granted, and
// in Life for how long they may be spent, from before the entry was sent.
type Lease struct {
	// ID tells the lease from all others of the fleet; not 0.
	ID uint64
	// Over is the ID of a lease that will no longer be spent, or 0.
	Over uint64
	// Most is how many units may be out on lease over all processes. Reserve is how many
	// must be free for none to be leased.
	Most, Reserve int64
	// Life is how long the lease lasts, at most lua.LongestLease.
	Life time.Duration
}

func (e *Entry) operation() int {
	if e.Operation == 0 {
		return lua.Take
	}
	return e.Operation
}

func (e *Entry) count() int64 { return max(1, e.Count) }

// redisKey is the entry's key in Redis.
func (e *Entry) redisKey() string {
	if e.name == "" {
		e.name = e.Rule.redisKey(e.Key)
	}
	return e.name
}

// described is what errors, which are logged, say of the entry: its rule, and of a key that
// stands in Redis as a hash that hash. Other keys may be credentials or personal data.
func (e *Entry) described() string {
	text := "rule " + strconv.Quote(e.Rule.name)
	if strings.HasPrefix(e.Key, hashedKey) {
		text += ", key " + e.Key
	}
	return text
}

// leaseKey is the key that tells what is out on lease of the entry's. No rule's name has
// a colon.
func (e *Entry) leaseKey() string {
	if e.leaseName == "" {
		e.leaseName = leaseKey(e.redisKey())
	}
	return e.leaseName
}

// markerKey is the Redis key of a Charge's marker.
func (e *Entry) markerKey() string { return markerKey(e.redisKey(), e.Marker) }

// sameKey reports whether the entry follows another one of its key, so that the key
// need not be sent again. A group's keys all differ.
func (e *Entry) sameKey(before *Entry) bool {
	return e.redisKey() == before.redisKey()
}

// work is how many units the script writes one by one for the entry; one of a sorted set counts
// as several.
func (e *Entry) work() int64 {
	if e.Rule.unitWork == 0 {
		return 0
	}
	if e.Operation == lua.Charge {
		// The log is written anew, with as many units as it may hold at most.
		work := e.Rule.quota
		for _, c := range e.charges() {
			work += min(c.Units, e.Rule.quota)
		}
		return work * e.Rule.unitWork
	}
	if e.Operation == lua.Settle {
		return e.Rule.quota * e.Rule.unitWork // it may be written anew; see batch.addsNoWork
	}
	return e.Rule.Work(e.Cost * e.count())
}

// longestAgo is further back than any unit counts, and not before clocks begin.
const longestAgo = 10 * limit.MaxWindow

// charges are the units of a Charge as the script wants them: the youngest first, and
// none that are none.
func (e *Entry) charges() []Charge {
	charges := make([]Charge, 0, len(e.Charges))
	for _, c := range e.Charges {
		if c.Units > 0 {
			charges = append(charges, Charge{min(c.Units, lua.MaxUnits), min(max(0, c.Age), longestAgo)})
		}
	}
	slices.SortStableFunc(charges, func(a, b Charge) int { return cmp.Compare(a.Age, b.Age) })
	return charges
}
