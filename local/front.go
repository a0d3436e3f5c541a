package local

import (
	"math/bits"
	"sync/atomic"
)

// front is the table in which denials are looked up first. Each hash has one place, which is read
// without a lock and without writing anything that callers share. A place holds one key, for as
// long as its denial is in force. Keys that are asked for most often are the first to take a place;
// the others are found in ristretto.
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
