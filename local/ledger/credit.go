package ledger

import (
	"math"
	"sync/atomic"
)

// credit has units of one key that are granted without the set's lock until the sub-window ends:
// all that were free when Take last looked. As units leave the window, more become free and not
// fewer, and any other change of the record first takes back the rest of the credit. So each of
// these units may be granted (law 11), by one atomic operation. A caller that read the clock before
// the sub-window ended but arrives later is served as of its time.
//
// Grants are recorded when the credit ends; anything that takes the set's lock ends it.
type credit struct {
	// left has the remaining units in its lower half, and in its upper half a number that differs
	// for each credit, so that a compare-and-swap succeeds only on the credit that was read.
	left atomic.Uint64
	// A request must have the same tag, which is 0 if there is no credit, and a time before ends.
	// Both change only while nothing is left.
	tag  atomic.Uint64
	ends atomic.Int64

	issued uint32 // units; 0: there is none. This and record are under the set's lock.
	record uint32 // the record's position in the set
}

const mostCredit = math.MaxUint32

// tag distinguishes a key's credits by what they depend on: the limit, who is to be charged, and the outage in which the
// share was fixed.
func (a *Account[O]) tag(o Outage) uint64 {
	return a.Hash ^ a.Terms ^ (uint64(a.Quota)<<32 | uint64(a.Quota)>>32) ^ uint64(o.Number)*0x9e3779b97f4a7c15
}

// spend grants cost units if they are left, and returns what is left then.
func (c *credit) spend(tag uint64, now, cost int64) (left int64, ok bool) {
	for {
		was := c.left.Load()
		left = int64(was&mostCredit) - cost
		if left < 0 || c.tag.Load() != tag || now >= c.ends.Load() {
			return 0, false
		}
		if c.left.CompareAndSwap(was, was-uint64(cost)) {
			return left, true
		}
	}
}

// issue makes units of the record at position i a credit; there must be none yet. Units that do not
// fit into it are granted under the lock.
func (c *credit) issue(i int, tag uint64, ends, units int64) {
	if units < 1 || units > mostCredit {
		return
	}
	c.issued, c.record = uint32(units), uint32(i)
	c.tag.Store(tag)
	c.ends.Store(ends)
	c.left.Store(c.left.Load() | uint64(units))
}

// end takes back the rest, and returns the number of units that were granted.
func (c *credit) end() (granted int64) {
	number := c.left.Load() >> 32
	left := c.left.Swap((number + 1) << 32)
	granted = int64(c.issued) - int64(left&mostCredit)
	c.issued = 0
	c.tag.Store(0)
	return granted
}

// lock locks the set of a hash, and records the grants from its credit. It returns the set, and the
// position of the hash's record in it or -1.
func (l *Ledger[O]) lock(hash uint64) (set *ledgerSet, i int) {
	set = l.set(hash)
	l.lockSet(set)
	return set, set.find(hash)
}

func (l *Ledger[O]) lockSet(set *ledgerSet) {
	set.mu.Lock()
	if set.credit.issued == 0 {
		return
	}
	i := int(set.credit.record)
	granted := set.credit.end()
	if granted == 0 {
		return
	}
	// A credit has a line, see take, and the record has not moved on since.
	e := l.lines[set.index][i]
	r := &set.records[i]
	newest := r.newest(subWindow(e.window))
	r.add(newest, granted)
	l.journalMore(e, newest, granted)
}

// settleCredits records the grants from all credits.
func (l *Ledger[O]) settleCredits() {
	for i := range l.sets {
		if set := &l.sets[i]; set.credit.tag.Load() != 0 {
			l.lockSet(set)
			set.mu.Unlock()
		}
	}
}
