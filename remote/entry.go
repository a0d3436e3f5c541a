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

// Charge is a number of units that were granted earlier without asking Redis. Age is their age when the entry
// is made. The time for which the entry then waits is not added, so the units leave the window late rather than
// early.
//
// Under GCRA, send the rest of the debt as one Charge of age 0, computed at the instance's own part
// of the rate, because the debts of several instances add up.
type Charge struct {
	Units int64
	Age   time.Duration
}

// ChargeRepeats is how long after its first sending a charge may be sent again with the same sequence. Redis
// remembers a charge for that long, or until its units have left the window.
const ChargeRepeats = 10 * time.Minute

// Entry asks the script for a decision, or for several decisions of the same cost, one after another.
type Entry struct {
	// Key is the Redis key; or a [UserKey], if the rule was named (see [Rule.Named]).
	Key string
	// Hash is passed to the rule's [Observer].
	Hash uint64
	// Rule is the rule that decides.
	Rule *Rule
	// Operation is one of the operations of package lua.
	Operation int
	// Cost is the number of units to charge or refund. A cost to charge is between 1 and the rule's capacity.
	// For Slots it is the number of units that the rule's process holds, or lua.SlotsAsKnown.
	Cost int64
	// Count is the number of decisions of that cost, made one after another; 0 means 1. Only a Take has a count
	// above 1, or a Hold or Settle into which a batch has merged others.
	Count int64
	// Charged and Stamp identify the charge to refund. Charged is its cost, less the units that were already
	// refunded; Stamp is its Reply.Stamp. Under a log, a Charged of 0 undoes the charge: its own units are given
	// back, and not the oldest.
	Charged, Stamp int64
	// Charges are the units of the operation Charge, in any order; an instance's ledger has at most
	// 17 of them. All units that are still in the window are charged, whether or not they fit, up to
	// four times the limit. Cost and Count are not used.
	Charges []Charge
	// Marker and Sequence prevent a Charge from being made twice. Marker identifies the instance
	// that granted the units. Sequence is a number, from 1 on, that the instance increments with
	// each new charge to the key, and repeats when it does not know whether a charge was made. Redis
	// skips a charge whose Sequence is not above the largest one charged. (On a Cluster, Key must
	// have a hash tag, as those of a Keyspace do.)
	Marker   string
	Sequence int64
	// NotAfter is the time on Redis's clock, in µs, after which the entry is not charged; 0 means
	// none.
	NotAfter int64
	// Group, if not 0, joins neighboring entries with the same number, so that all of them are
	// charged or none. Their keys must differ and, on a Cluster, share a hash slot. It is at most
	// 65,535.
	Group int
	// Lease has the terms of a lease. Cost is then the number of units wanted; with 0, the entry only
	// ends the old lease.
	Lease *Lease
	// Hold is the hold that a Hold, HoldUpTo, Settle or Extend is about. For Settle, Cost is the number of
	// units used; 0 gives all of them back.
	Hold *Hold

	name      string // the Redis key, once computed
	holdsName string // the Redis key of the holds, once computed

	joined []joinedHold // the single holds that a Hold or Settle with a Count is made of
}

// Lease has the terms on which units are charged in advance for one process, which may then spend
// them by itself (see lua/lease.lua). In the reply, Granted is the number of units, and Life is how
// long they may be spent, counted from before the entry was sent.
type Lease struct {
	// ID identifies the lease in the fleet; it is not 0.
	ID uint64
	// Over is the ID of a lease that ends, because it will no longer be spent, or 0.
	Over uint64
	// Most is the largest number of units that all processes together may have on lease. Reserve is
	// the number of units that must stay free.
	Most, Reserve int64
	// Life is how long the lease lasts, at most lua.LongestLease.
	Life time.Duration
}

func (e *Entry) count() int64 { return max(1, e.Count) }

func (e *Entry) redisKey() string {
	if e.name == "" {
		e.name = e.Rule.redisKey(e.Key)
	}
	return e.name
}

// described returns a description of the entry for errors, which are logged. It names the rule and, if the key
// is stored as a hash, that hash. Other keys are left out, as they may be credentials or personal data.
func (e *Entry) described() string {
	text := "rule " + strconv.Quote(e.Rule.name)
	if strings.HasPrefix(e.Key, hashedKey) {
		text += ", key " + e.Key
	}
	return text
}

// sameKey reports whether the entry has the same key as "before", the entry in front of it. If so, the key need
// not be sent again. The keys of a group all differ.
func (e *Entry) sameKey(before *Entry) bool {
	return e.redisKey() == before.redisKey()
}

// work returns the number of units that the script writes one by one for the entry. A unit in a sorted
// set counts as several.
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
		return e.Rule.quota * e.Rule.unitWork // the log may be rewritten; see batch.addsNoWork
	}
	return e.Rule.Work(e.Cost * e.count())
}

// longestAgo bounds the age of a charge. It is longer than any window, but short enough that no time becomes
// negative.
const longestAgo = 10 * limit.MaxWindow

// charges returns the entry's Charges in the order that the script expects, the youngest first, and leaves out
// charges of 0 units.
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
