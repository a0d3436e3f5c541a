package ledger

import (
	"math"
	"sync/atomic"
)

// credit has units of one key that are granted without the set's lock until the sub-window ends. They are
// all units that were free when Take last looked. As units leave the window, more become free and not
// fewer, and any other change of the record first takes back the rest of the credit. So each unit of the
// credit may be granted (law 11), by one atomic operation. A caller that read the clock before the
// sub-window ended, but arrives later, is served as of the time it read.
//
// Grants are recorded when the credit ends. Anything that takes the set's lock ends it.
type credit struct {
	// left has the remaining units in its lower half. Its upper half is a number that differs for each
	// credit, so that a compare-and-swap succeeds only on the credit that was read.
	left atomic.Uint64
	// A request is served only if it has the same tag, and a time before ends. The tag is 0 if there is
	// no credit. tag and ends change only while nothing is left.
	tag  atomic.Uint64
	ends atomic.Int64

	issued uint32 // units; 0: no credit. The set's lock guards issued and record.
	record uint32 // the record's position in the set
}

const maxCredit = math.MaxUint32

// tag distinguishes a key's credits by everything that they depend on: the limit, the way in which Redis
// is charged, and the outage in which the share was fixed.
func (a *Account[O]) tag(o Outage) uint64 {
	return a.Hash ^ a.Terms ^ (uint64(a.Quota)<<32 | uint64(a.Quota)>>32) ^ uint64(o.Number)*0x9e3779b97f4a7c15
}

// spend grants cost units if the credit has them, and returns the units that are then left.
func (c *credit) spend(tag uint64, now, cost int64) (left int64, ok bool) {
	for {
		was := c.left.Load()
		left = int64(was&maxCredit) - cost
		if left < 0 || c.tag.Load() != tag || now >= c.ends.Load() {
			return 0, false
		}
		if c.left.CompareAndSwap(was, was-uint64(cost)) {
			return left, true
		}
	}
}

// issue makes units of the record at position i a credit. There must be no credit yet. If the number of
// units does not fit into a credit, none is issued, and the units are granted under the lock.
func (c *credit) issue(i int, tag uint64, ends, units int64) {
	if units < 1 || units > maxCredit {
		return
	}
	c.issued, c.record = uint32(units), uint32(i)
	c.tag.Store(tag)
	c.ends.Store(ends)
	c.left.Store(c.left.Load() | uint64(units))
}

// end takes back the rest of the credit, and returns the number of units that were granted.
func (c *credit) end() (granted int64) {
	number := c.left.Load() >> 32
	left := c.left.Swap((number + 1) << 32)
	granted = int64(c.issued) - int64(left&maxCredit)
	c.issued = 0
	c.tag.Store(0)
	return granted
}

// lock locks the set of a hash, and records the grants from the set's credit. It returns the set, and the
// position of the hash's record in the set, or -1.
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
	// The record of a credit always has a line (see take), and has not moved on since.
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
