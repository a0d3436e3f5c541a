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

// Charge is a number of units that were granted earlier without asking Redis. Age is their age when
// the entry is made. The time that the entry then waits makes them appear younger than they are, so
// they leave the window late rather than early.
//
// Under GCRA, send the rest of the debt as one Charge of age 0, computed at the instance's own part
// of the rate, because the debts of several instances add up.
type Charge struct {
	Units int64
	Age   time.Duration
}

// ChargeRepeats is how long after it was first sent a charge may be sent again with the same
// sequence. For that time, or until the units have left the window, Redis remembers that it has
// been made.
const ChargeRepeats = 10 * time.Minute

// Entry asks for one decision, or for several of the same cost one after another.
type Entry struct {
	// Key is the Redis key; or a [UserKey], if the rule was named (see [Rule.Named]).
	Key string
	// Hash is for the rule's [Asker].
	Hash uint64
	// Rule is the rule that decides.
	Rule *Rule
	// Operation is one of the operations of package lua; 0 is Take.
	Operation int
	// Cost is the number of units to charge, between 1 and the rule's capacity, or to refund. For
	// Slots it is the number of units that the rule's process holds, or lua.SlotsAsKnown.
	Cost int64
	// Count is the number of decisions of that cost, made one after another; 0 means 1. Only Take
	// has a count, and a Hold or Settle that others have joined in a batch.
	Count int64
	// Charged and Stamp identify the charge to refund: its cost, less the units that were refunded
	// already, and its Reply.Stamp.
	Charged, Stamp int64
	// Charges are the units of the operation Charge, in any order; an instance's ledger has at most
	// 17. All that still count are charged, whether or not they fit, up to four times the limit.
	// Cost and Count are not used.
	Charges []Charge
	// Marker and Sequence prevent that a Charge is made twice. Marker is the instance that granted
	// the units. Sequence is a number, from 1 on, that it raises with each new charge to the key,
	// and repeats when it does not know whether a charge was made. Redis skips a charge whose
	// Sequence is not above the largest one charged. (On a Cluster, Key must have a hash tag, as
	// those of a Keyspace do.)
	Marker   string
	Sequence int64
	// NotAfter is the time, in µs on Redis's clock, after which the entry must not be charged; 0
	// means no such time.
	NotAfter int64
	// Group, if not 0, joins neighbouring entries with the same number: all of them are charged, or
	// none. Their keys must differ, and on a Cluster share a slot. It is at most 65,535.
	Group int
	// Lease has the terms of a lease. Cost is then the number of units wanted; 0 only ends the old
	// lease.
	Lease *Lease
	// Hold is the hold of a Hold, HoldUpTo, Settle or Extend. For Settle, Cost is the number of
	// units used; 0 gives all back.
	Hold *Hold

	name      string // the Redis key, once it is computed
	leaseName string // the key of the leases
	holdsName string // the key of the holds

	joined []joinedHold // of a Hold or a Settle with a Count, all but the first
}

// Lease has the terms on which units are charged in advance for one process, which may then spend
// them by itself (see lua/lease.lua). The reply has the units in Granted, and in Life how long they
// may be spent, counted from before the entry was sent.
type Lease struct {
	// ID identifies the lease in the fleet; it is not 0.
	ID uint64
	// Over is the ID of a lease that ends, because it will no longer be spent, or 0.
	Over uint64
	// Most is the largest number of units on lease over all processes. Only units that are free
	// beyond Reserve can be leased.
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

// redisKey returns the entry's key in Redis.
func (e *Entry) redisKey() string {
	if e.name == "" {
		e.name = e.Rule.redisKey(e.Key)
	}
	return e.name
}

// described returns the text by which errors, which are logged, name the entry: its rule, and the
// key's hash if the key is stored as one. Other keys are left out, as they may be credentials or
// personal data.
func (e *Entry) described() string {
	text := "rule " + strconv.Quote(e.Rule.name)
	if strings.HasPrefix(e.Key, hashedKey) {
		text += ", key " + e.Key
	}
	return text
}

// leaseKey returns the key of the leases of the entry's key. No rule's name has a colon.
func (e *Entry) leaseKey() string {
	if e.leaseName == "" {
		e.leaseName = leaseKey(e.redisKey())
	}
	return e.leaseName
}

// markerKey returns the Redis key of a Charge's marker.
func (e *Entry) markerKey() string { return markerKey(e.redisKey(), e.Marker) }

// sameKey reports whether the entry follows another one of its key, so that the key
// need not be sent again. A group's keys all differ.
func (e *Entry) sameKey(before *Entry) bool {
	return e.redisKey() == before.redisKey()
}

// work returns the number of units that the script writes one by one for the entry; a unit of a
// sorted set counts as several.
func (e *Entry) work() int64 {
	if e.Rule.unitWork == 0 {
		return 0
	}
	if e.Operation == lua.Charge {
		// The log is rewritten, with at most as many units as it may hold.
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

// longestAgo is longer than any unit counts, but not so long that clocks become negative.
const longestAgo = 10 * limit.MaxWindow

// charges returns the units of a Charge in the order that the script expects: the youngest first,
// and without charges of 0 units.
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
