package local

import (
	"math/bits"
	"sync/atomic"
)

// front is the table in which a denial is looked up first. Each hash has one place, which is read without
// a lock and without writing to memory that callers share. Several keys may have the same place. It holds
// the denial of one of them for as long as that denial is in force. Keys that are asked for most are
// likely to come first, and so to get the place. The denials of other keys are found in ristretto.
//
// The table is for keys that all cores ask for at the same time. A Get of ristretto takes the read lock
// of a shard, which is a write to memory that all cores share, and records the use. With the table,
// a whole denial of one hot key takes 0.59 to 0.73 of the time of a bare Get and a clock reading
// (docs/measurements.md). The table also has each change at once, while ristretto has it a moment later;
// see [Denials.Forget].
type front []atomic.Pointer[denial]

// newFront returns a table with at least as many places as keys.
func newFront(keys int) front {
	return make(front, 1<<bits.Len(uint(max(0, keys-1))))
}

func (f front) place(hash uint64) *atomic.Pointer[denial] {
	// The low bits choose the shard of ristretto.
	return &f[hash>>8&uint64(len(f)-1)]
}

// get returns the last denial of a key, or nil if another key has its place.
func (f front) get(hash uint64) *denial {
	if known := f.place(hash).Load(); known != nil && known.hash == hash {
		return known
	}
	return nil
}

// put stores the denial of a request that was sent at the given time, unless the place holds another
// key's denial that was in force then. It returns false if the denial is void; see denial.forgotten.
func (f front) put(d *denial, sent int64) (valid bool) {
	for place := f.place(d.hash); ; {
		old := place.Load()
		switch {
		case old == nil:
		case old.hash != d.hash && sent < old.ends():
			return true
		case old.hash == d.hash && sent < old.forgotten:
			return false
		case old.hash == d.hash:
			d.forgotten = max(d.forgotten, old.forgotten)
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
