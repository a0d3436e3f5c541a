package ledger

import (
	"math"
	"sync/atomic"
)

// credit is units of one key that are granted without the set's lock: all that were free
// when Take last looked, until the sub-window ends. As units leave, more get free and not
// fewer, and whoever else changes the record takes back what is left of the credit first.
// So each of them may be granted (law 11), by one atomic operation. Who looked at the clock
// before that and comes only now is served as of then, too.
//
// What was granted is put on record when the credit ends, which anything does that takes
// the set's lock.
type credit struct {
	// left is the units that are left, in the lower half, and in the upper half a number
	// that is another one for each credit: who compares and swaps has the one it looked at.
	left atomic.Uint64
	// What is asked for must be of the tag, which is 0 if there is no credit, and before the
	// end. Both change only while nothing is left.
	tag  atomic.Uint64
	ends atomic.Int64

	issued uint32 // units; 0: there is none. This and record are under the set's lock.
	record uint32 // its position in the set
}

const mostCredit = math.MaxUint32

// tag tells a key's credits apart by what they depend on: the limit and the outage that
// the share was fixed in.
func (a *Account) tag(o Outage) uint64 {
	return a.Hash ^ (uint64(a.Quota)<<32 | uint64(a.Quota)>>32) ^ uint64(o.Number)*0x9e3779b97f4a7c15
}

// spend grants cost units if they are left, and says what is left then.
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

// issue makes units of the record at position i a credit; there must be none. More than
// fit are granted under the lock.
func (c *credit) issue(i int, tag uint64, ends, units int64) {
	if units < 1 || units > mostCredit {
		return
	}
	c.issued, c.record = uint32(units), uint32(i)
	c.tag.Store(tag)
	c.ends.Store(ends)
	c.left.Store(c.left.Load() | uint64(units))
}

// end takes back what is left, and returns what was granted.
func (c *credit) end() (granted int64) {
	number := c.left.Load() >> 32
	left := c.left.Swap((number + 1) << 32)
	granted = int64(c.issued) - int64(left&mostCredit)
	c.issued = 0
	c.tag.Store(0)
	return granted
}

// lock locks the set of a hash, and puts on record what was granted from its credit.
func (l *Ledger) lock(hash uint64) *ledgerSet {
	set := l.set(hash)
	l.lockSet(set)
	return set
}

func (l *Ledger) lockSet(set *ledgerSet) {
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
	newest := r.gone/subWindow(e.window) - ledgerCounts
	r.add(newest, granted)
	l.journalMore(e, newest, granted)
}

// settleCredits puts on record what was granted from credits.
func (l *Ledger) settleCredits() {
	for i := range l.sets {
		if set := &l.sets[i]; set.credit.tag.Load() != 0 {
			l.lockSet(set)
			set.mu.Unlock()
		}
	}
}
