package ledger

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// Ledger records this instance's own grants of about the last window, for each key, at all times, and
// decides from these records when Redis cannot be reached. Because the records are kept before an outage
// too, the start of an outage grants no second quota. O is the type of the accounts' owners. A Ledger is
// safe for concurrent use.
//
// A record (record.go) is a sliding counter of 16 sub-windows in 64 bytes. The table has a fixed number
// of records, in sets that are locked one by one. When a set is full, one record is evicted (place), and
// its units become arrears of new keys of the set (overflow.go). Apart from that, an absent record equals
// an empty one.
type Ledger[O any] struct {
	sets  []ledgerSet
	lines []*[ledgerWays]*line[O] // of the sets; not in the sets, because pointers there would shift their records

	groups     groups
	generation atomic.Uint32 // of Redis's data, see Forgotten
	journal    journal
	losses     losses
	rules      rules
	overflows  []*overflow // of the sets; nil for a set that has evicted nothing
}

// Account is a key under its limit. Owner is returned with the units that must be charged in Redis
// (Debt), for the caller that charges them.
type Account[O any] struct {
	Hash   uint64        // salted, so that windows of different lengths have different records
	Window time.Duration // of the limit
	Quota  int64         // of the whole fleet
	Owner  O
	Key    string
	// Terms differ for owners that are charged in different ways, even under the same limit: for example
	// by another algorithm.
	Terms uint64
	// Rule is the number of the rule; see [Ledger.RuleNumber]. Records are evicted first in favor of
	// others of their own rule.
	Rule uint8
	// Charged says that the grants may have been charged in Redis already, so they must not be charged
	// there afterwards (law 3).
	Charged bool
}

// Grant is the answer to a request for units.
type Grant struct {
	Granted    int64
	Free       int64         // units that are left
	RetryAfter time.Duration // until the requested units fit, if nothing was granted
}

const ledgerWays = 8 // records per set

type ledgerSet struct {
	mu      sync.Mutex // guards all but index, and the set's lines; see lock
	index   int
	tags    [ledgerWays]uint8 // parts of the records' hashes, so that usually one record is read, not all
	rules   [ledgerWays]uint8 // the records' rules; see Account
	credit  credit            // its size aligns the records to cache lines
	records [ledgerWays]record
}

// New returns a table for at least the given number of keys.
func New[O any](keys int) *Ledger[O] {
	sets := uint64(1) << bits.Len(uint(max(0, keys-1)/ledgerWays))
	l := &Ledger[O]{sets: make([]ledgerSet, sets), lines: make([]*[ledgerWays]*line[O], sets), overflows: make([]*overflow, sets)}
	for i := range l.sets {
		l.sets[i].index = i
	}
	l.rules.named = make(map[string]*namedRule)
	l.GroupBy(1, func(string) int { return 0 })
	return l
}

// Add records that cost units were granted at now, without asking whether they fit. In an outage it fixes the share
// first, because these units must not raise it.
func (l *Ledger[O]) Add(a *Account[O], o Outage, now, cost int64) {
	set, i := l.lock(a.Hash)
	defer set.mu.Unlock()
	if i < 0 {
		i = l.place(set, l.newRecord(a), a.Rule, now, a.Charged)
	} else {
		l.journalLost(set, i, a) // before adding: if Redis has charged these units, it has not lost them
	}
	r := &set.records[i]
	r.share(o, a.Window, a.Quota, now)
	newest := r.advance(subWindow(a.Window), now)
	r.add(newest, cost)
	if !a.Charged {
		l.journalAdd(set, i, a, now, newest, cost)
	}
}

// Take grants cost units at now if this instance's own grants of the last window leave room for them
// within its share of the limit.
//
// Grant.Free may be slightly too small; see credit.
func (l *Ledger[O]) Take(a *Account[O], o Outage, now, cost int64) Grant {
	if o.Number != 0 && !a.Charged {
		if left, ok := l.set(a.Hash).credit.spend(a.tag(o), now, cost); ok {
			return Grant{Granted: cost, Free: left}
		}
	}
	return l.take(a, o, now, cost, cost, true)
}

// TakeUpTo is Take, but grants as much of the cost as fits.
func (l *Ledger[O]) TakeUpTo(a *Account[O], o Outage, now, cost int64) Grant {
	return l.take(a, o, now, 1, cost, true)
}

// Reserve grants up to most units, if at least least units fit, until Redis has answered. Call Undo then.
func (l *Ledger[O]) Reserve(a *Account[O], o Outage, now, least, most int64) Grant {
	return l.take(a, o, now, least, most, false)
}

// Free returns the units that Take could grant now, and the time until a cost that does not fit now will
// fit.
func (l *Ledger[O]) Free(a *Account[O], o Outage, now, cost int64) (free int64, retryAfter time.Duration) {
	g := l.take(a, o, now, cost, 0, false)
	return g.Free, g.RetryAfter
}

// take grants up to most units if at least least units are free. With journaled, the units are granted
// for good, without Redis, and are added to the journal.
func (l *Ledger[O]) take(a *Account[O], o Outage, now, least, most int64, journaled bool) Grant {
	length := subWindow(a.Window)
	set, i := l.lock(a.Hash)
	defer set.mu.Unlock()
	var fresh record // stored only if it is not empty
	r := &fresh
	var owed arrears
	if i >= 0 {
		r = &set.records[i]
		l.journalLost(set, i, a)
		owed = l.overflow(set).owed[i]
	} else {
		fresh = l.newRecord(a)
		owed = l.overflow(set).made[fresh.size%sizeClasses]
	}
	share := r.share(o, a.Window, a.Quota, now)
	newest := r.advance(length, now)
	used := r.used(newest, length, now)
	reached := o.reached(share, a.Window, now)
	owed = owed.at(now)
	// One unit stays free, so that no key is denied everything because of other keys.
	unrecorded := min(owed.units, reached-1)
	free := max(0, reached-used-unrecorded)
	switch {
	case least > share:
		return Grant{Free: free, RetryAfter: a.Window} // it cannot fit while the share is so small
	case least > free:
		wait := max(r.wait(newest, length, now, share-least), o.reaches(used+least, share, a.Window, now))
		if unrecorded > 0 {
			wait = max(wait, time.Duration(owed.over()-now))
		}
		return Grant{Free: free, RetryAfter: wait}
	}
	granted := min(most, free)
	if granted > 0 {
		if i < 0 {
			i = l.place(set, fresh, a.Rule, now, a.Charged || !journaled)
			r = &set.records[i]
		}
		r.add(newest, granted)
		if journaled {
			r.spend(o, a.Window, a.Quota, now, granted)
		}
		if journaled && !a.Charged {
			l.journalAdd(set, i, a, now, newest, granted)
			if o.Number != 0 { // otherwise the share changes from moment to moment
				set.credit.issue(i, a.tag(o), (newest+1)*length, free-granted)
			}
		}
	}
	return Grant{Granted: granted, Free: free - granted}
}

// Used returns the units of the last window that are recorded for a key.
func (l *Ledger[O]) Used(a *Account[O], now int64) int64 {
	length := subWindow(a.Window)
	set, i := l.lock(a.Hash)
	defer set.mu.Unlock()
	if i < 0 {
		return 0
	}
	r := &set.records[i]
	return r.used(r.advance(length, now), length, now)
}

// Oldest is the time of a grant whose time is not known, for [Ledger.Return]: the oldest units are taken back
// first, so that the rest leaves no earlier than it should.
const Oldest = math.MinInt64

// Return takes back up to the given number of units granted in the last window. It takes back those that were
// granted at the time granted, or soon after it, so that the record is as if they had never been granted. If it
// took the oldest instead, which leave the window soon anyway, a key to which much is given back would have
// more on record than it used and than Redis counts. In an outage it might then be granted nothing.
//
// If there are too few units of that time, an earlier Return of [Oldest] has taken them, which it does only if
// there are no older ones. So the next ones are newer: Return goes on with these, and with the oldest last.
//
// uncharged says that the units were granted without Redis; if they have not been charged there yet, they need
// not be charged.
func (l *Ledger[O]) Return(a *Account[O], now, granted, units int64, uncharged bool) {
	l.takeBack(a, now, granted, units, false, uncharged)
}

// Undo takes back units that have just been reserved or, with journaled, granted by Take. It removes the
// newest units. If it removed the oldest, earlier units would leave later than without the two calls, and
// later still with each repetition.
func (l *Ledger[O]) Undo(a *Account[O], now, units int64, journaled bool) {
	l.takeBack(a, now, now, units, true, journaled && !a.Charged)
}

// takeBack removes units from the sub-windows, one after another: from that of the time from on or, with
// newestFirst, from the newest back.
func (l *Ledger[O]) takeBack(a *Account[O], now, from, units int64, newestFirst, journaled bool) {
	set, i := l.lock(a.Hash)
	defer set.mu.Unlock()
	if i < 0 {
		return
	}
	r := &set.records[i]
	length := subWindow(a.Window)
	newest := r.advance(length, now)
	// Positions are circular: the oldest, newest-ledgerBuckets, is at newest+1.
	first, step := min(max(from/length, newest-ledgerBuckets), newest)+ledgerCounts, int64(1)
	if newestFirst {
		first, step = newest+ledgerCounts, -1
	}
	inJournal := units
	for index, n := first, 0; n < ledgerCounts; index, n = index+step, n+1 {
		units -= r.remove(newest, index, units)
		if journaled {
			inJournal -= l.journalRemove(set, i, newest, index, inJournal)
		}
	}
}

func (l *Ledger[O]) set(hash uint64) *ledgerSet {
	// The low bits choose the shard of the denials' cache, and the next ones choose the place in its
	// front.
	return &l.sets[hash>>24&uint64(len(l.sets)-1)]
}

// Fetch makes the processor fetch the record of a hash from main memory. Records that are fetched one
// after another arrive at the same time, but records that are locked one after another do not.
func (l *Ledger[O]) Fetch(hash uint64) { l.set(hash).credit.tag.Load() }

// find returns the position of a key's record, or -1.
func (s *ledgerSet) find(hash uint64) int {
	for i, tag := range s.tags {
		if tag == uint8(hash) && s.records[i].hash == hash {
			return i
		}
	}
	return -1
}

func (l *Ledger[O]) newRecord(a *Account[O]) record {
	return record{hash: a.Hash, size: recordSize(a.Window, a.Quota), generation: uint8(l.generation.Load()), frozen: true}
}

// place replaces the record of least weight (record.weight) by a new record. It evicts only records of the new
// record's rule, and of rules that have at least as many records in the set as that rule would then have.
// So once a flood of keys of one rule has its part of each set, it evicts that rule's records. It does
// not evict records of rules with fewer records, however few units these have in their windows (law 11).
// Empty records are evicted first.
//
// charged says that Redis knows of the new record's units. In that case, records with units that must
// still be charged are evicted last. If such a record were lost, its rule would have to settle for a
// window. If another record is lost, only the next outage grants less.
func (l *Ledger[O]) place(set *ledgerSet, r record, rule uint8, now int64, charged bool) int {
	own := set.recordsOf(rule) + 1
	least, lightest, leastOwes := 0, math.Inf(1), true
	for i := range set.records {
		weight := set.records[i].weight(now)
		if weight > 0 && set.rules[i] != rule && set.recordsOf(set.rules[i]) < own {
			continue
		}
		owes := charged && weight > 0 && l.line(set, i) != nil
		if owes == leastOwes && weight < lightest || leastOwes && !owes {
			least, lightest, leastOwes = i, weight, owes
		}
	}
	l.recordEviction(set, least, r.size, now)
	set.tags[least], set.rules[least], set.records[least] = uint8(r.hash), rule, r
	return least
}

func (s *ledgerSet) recordsOf(rule uint8) (records int) {
	for _, other := range s.rules {
		if other == rule {
			records++
		}
	}
	return records
}
