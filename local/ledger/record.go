package ledger

import (
	"math"
	"math/bits"
	"time"
)

const (
	ledgerBuckets = 16
	ledgerCounts  = ledgerBuckets + 1 // the oldest sub-window overlaps the window in part
)

// A count has 16 bits. One that would pass them halves the precision of all.
const (
	countMost = 1<<16 - 1
	maxShift  = 32
	// maxCount is the most units that a sub-window counts. A rest above it still
	// rounds up to countMost.
	maxCount = countMost<<maxShift - 1
)

// record fills one cache line of 64 bytes. All its sub-windows have the same
// length; who uses it knows which.
type record struct {
	hash uint64
	// gone is when the newest sub-window will have left the window. So its number
	// is gone/length - ledgerCounts.
	gone int64
	// The count of sub-window i, in units of 2^shift, is at position i mod
	// ledgerCounts. Rest are the units of the newest one below that, which are
	// rounded up when the next one begins: so costs of 1 are counted exactly at any
	// shift while they matter, and late rather than early afterwards.
	counts [ledgerCounts]uint16
	part   uint16 // of the limit: see share.go
	rest   uint32
	at     uint32
	shift  uint8
	size   uint8 // see weight
	// generation of Redis's memory that these grants are in, as far as they were
	// made or confirmed by it.
	generation uint8
	frozen     bool
}

// recordSize is the logarithm of an account's quota and window, for weight.
func recordSize(a *Account) uint8 {
	return uint8(bits.Len64(uint64(a.Quota)) + bits.Len64(uint64(a.Window)))
}

// weight is what would be forgotten with the record: units as a part of the quota,
// and for how long yet as a part of the window; but for a factor that is the same
// for all, and to within a factor of 4.
func (r *record) weight(now int64) float64 {
	if r.gone <= now {
		return 0
	}
	return math.Ldexp(float64(r.total())*float64(r.gone-now), -int(r.size))
}

// subWindow is the length of a sub-window, rounded up: a record forgets late
// rather than early.
func subWindow(window time.Duration) int64 {
	return (int64(window) + ledgerBuckets - 1) / ledgerBuckets
}

// count is the units of sub-window index, but for the rest of the newest.
func (r *record) count(index int64) int64 {
	return int64(r.counts[index%ledgerCounts]) << r.shift
}

// total is the sum of all units.
func (r *record) total() int64 {
	sum := int64(0)
	for _, n := range r.counts {
		sum += int64(n)
	}
	return sum<<r.shift + int64(r.rest)
}

// sure is the units that are less than a window old, for certain: all but those of
// the sub-window that the window overlaps in part.
func (r *record) sure(newest int64) int64 { return r.total() - r.count(newest+1) }

// advance clears the sub-windows that have left the window by now, and returns the
// number of the newest one. That lies after now if a caller with a later one came
// first.
func (r *record) advance(length, now int64) (newest int64) {
	newest = r.gone/length - ledgerCounts
	if now < (newest+1)*length {
		return newest
	}
	current := now / length
	if r.rest > 0 {
		r.counts[newest%ledgerCounts]++ // there is room: see add
		r.rest = 0
	}
	if current-newest >= ledgerCounts {
		clear(r.counts[:])
		r.shift = 0
	} else {
		for i := newest + 1; i <= current; i++ {
			r.counts[i%ledgerCounts] = 0
		}
	}
	r.gone = (current + ledgerCounts) * length
	return current
}

// used is the sliding-counter estimate of the units granted in the last window.
func (r *record) used(newest, length, now int64) int64 {
	total := r.total()
	oldest := r.count(newest + 1) // the positions go round
	if oldest == 0 {
		return total
	}
	into := max(0, now-newest*length)
	return total - oldest + mulDivUp(oldest, length-into, length)
}

// wait is how long until no more than room units are in the window.
func (r *record) wait(newest, length, now, room int64) time.Duration {
	later := r.total()
	for index := newest; ; index++ { // the last one leaves all of them behind
		start := index * length
		if later <= room {
			return time.Duration(max(0, start-now))
		}
		oldest := r.count(index + 1)
		if index == newest+ledgerBuckets {
			oldest += int64(r.rest) // of the newest
		}
		if later-oldest <= room {
			into := mulDivUp(length, later-room, oldest)
			return time.Duration(max(0, start+into-now))
		}
		later -= oldest
	}
}

// add counts cost units in the newest sub-window, up to what a count can hold.
func (r *record) add(newest, cost int64) {
	n := r.count(newest) + int64(r.rest)
	n += min(cost, maxCount-n)
	for n > countMost<<r.shift { // or else a rest could not be rounded up
		r.coarser()
	}
	r.counts[newest%ledgerCounts] = uint16(n >> r.shift)
	r.rest = uint32(n & (1<<r.shift - 1))
}

// coarser halves all counts, rounded up. The newest is about to be set.
func (r *record) coarser() {
	for i, n := range r.counts {
		r.counts[i] = n/2 + n%2
	}
	r.shift++
}

// remove takes up to n units out of sub-window index, and returns how many.
func (r *record) remove(newest, index, n int64) (removed int64) {
	i := index % ledgerCounts
	count := r.count(index)
	isNewest := i == newest%ledgerCounts
	if isNewest {
		count += int64(r.rest)
	}
	removed = min(n, count)
	left := count - removed
	if isNewest {
		r.rest = uint32(left & (1<<r.shift - 1))
	} else {
		left += 1<<r.shift - 1 // rounded up
	}
	r.counts[i] = uint16(left >> r.shift)
	return removed
}

// mulDivUp is x*y/m rounded up. The product may pass 64 bits, the result may not.
func mulDivUp(x, y, m int64) int64 {
	hi, lo := bits.Mul64(uint64(x), uint64(y))
	quotient, rest := bits.Div64(hi, lo, uint64(m))
	if rest > 0 {
		quotient++
	}
	return int64(quotient)
}
