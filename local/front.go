package local

import (
	"math/bits"
	"sync/atomic"
)

// front is the table that a look-up of a denial tries first: one place for each hash,
// read without a lock and without writing anything that callers share. Of keys that
// meet at a place it holds one. That keeps the place for as long as its denial is in
// force, so places are with the keys that are asked for most: they come first. The
// others are found in ristretto, which keeps those of many keys that are worth it, in as much
// memory as it is given.
//
// It is there for keys that all cores ask for at once. A Get of ristretto takes the read lock of a
// shard, which is a write to memory that all of them share, and notes the use. With the table, a
// denial of one hot key takes 0.47 to 0.78 of a bare Get (docs/measurements.md). The table also
// knows at once what ristretto knows a moment later, see [Denials.Forget].
type front []atomic.Pointer[denial]

// newFront returns a table with at least as many places as keys.
func newFront(keys int) front {
	return make(front, 1<<bits.Len(uint(max(0, keys-1))))
}

func (f front) place(hash uint64) *atomic.Pointer[denial] {
	// The low bits choose the shard of ristretto, the next ones the set of the ledger.
	return &f[hash>>8&uint64(len(f)-1)]
}

// get returns the last denial of a key, or nil if another key has its place.
func (f front) get(hash uint64) *denial {
	if known := f.place(hash).Load(); known != nil && known.hash == hash {
		return known
	}
	return nil
}

// put stores the denial of a request sent at the given time, unless another key's denial has its
// place and was in force then. It returns false if the denial is void, see denial.forgotten.
func (f front) put(d *denial, sent int64) (valid bool) {
	for place := f.place(d.hash); ; {
		old := place.Load()
		switch {
		case old == nil:
		case old.hash != d.hash && sent < old.ends():
			return true
		case old.hash == d.hash && sent < old.forgotten:
			return false
		}
		if place.CompareAndSwap(old, d) {
			return true
		}
	}
}

func (f front) clear() {
	for i := range f {
		f[i].Store(nil)
	}
}
