package ledger

import (
	"math"
	"math/bits"
	"time"
)

const (
	ledgerBuckets = 16
	ledgerCounts  = ledgerBuckets + 1 // the oldest sub-window overlaps the window only in part
)

// A count has 16 bits. If one count would overflow, the precision of all counts is halved.
const (
	maxStored = 1<<16 - 1
	maxShift  = 32
	// maxCount is the largest number of units that a sub-window counts. With its rest rounded up, the
	// count is still at most maxStored.
	maxCount = maxStored<<maxShift - 1
)

// record fills one cache line of 64 bytes. All its sub-windows have the same length, which is not
// stored.
type record struct {
	hash uint64
	// expires is the time at which the newest sub-window will have left the window.
	expires int64
	// The count of sub-window i, in units of 2^shift, is at position i mod ledgerCounts. rest has the
	// units of the newest sub-window below 2^shift. They are rounded up when the next sub-window begins.
	// So at any shift, costs of 1 are counted exactly in the newest sub-window, and rounded up
	// afterwards.
	counts [ledgerCounts]uint16
	part   uint16 // part of the limit; see share.go
	rest   uint32
	at     uint32
	shift  uint8
	size   uint8 // see weight
	// generation is the generation of Redis's data that has these grants, if Redis made or confirmed
	// them. It has only the lowest 8 bits, because the cache line is full. So if Redis loses its data 256 times
	// within a window in which the key is not used, the first 256 losses are not noticed for the key.
	generation uint8
	frozen     bool
}

// recordSize returns the sum of the logarithms of a limit's window and quota, for weight.
func recordSize(window time.Duration, quota int64) uint8 {
	return uint8(bits.Len64(uint64(window)) + bits.Len64(uint64(quota)))
}

// weight measures what would be lost with the record: its units as a part of the quota, times their
// remaining time as a part of the window. It is exact to within a factor of 4, apart from a factor that
// is the same for all records.
func (r *record) weight(now int64) float64 {
	if r.expires <= now {
		return 0
	}
	return math.Ldexp(float64(r.total())*float64(r.expires-now), -int(r.size))
}

// subWindow returns the length of a sub-window, rounded up, so that a record forgets units late rather
// than early.
func subWindow(window time.Duration) int64 {
	return (int64(window) + ledgerBuckets - 1) / ledgerBuckets
}

// newest returns the number of the newest sub-window.
func (r *record) newest(length int64) int64 { return r.expires/length - ledgerCounts }

// count returns the units of sub-window index, without the rest of the newest.
func (r *record) count(index int64) int64 {
	return int64(r.counts[index%ledgerCounts]) << r.shift
}

// total returns the sum of all units.
func (r *record) total() int64 {
	sum := int64(0)
	for _, n := range r.counts {
		sum += int64(n)
	}
	return sum<<r.shift + int64(r.rest)
}

// certain returns the units that are certainly less than a window old. These are all units but those of the
// sub-window that the window overlaps in part.
func (r *record) certain(newest int64) int64 { return r.total() - r.count(newest+1) }

// advance clears the sub-windows that have left the window by now, and returns the number of the newest
// one. The newest one may be later than now, if a caller with a later time came first.
func (r *record) advance(length, now int64) (newest int64) {
	newest = r.newest(length)
	if now < (newest+1)*length {
		return newest
	}
	current := now / length
	if r.rest > 0 {
		r.counts[newest%ledgerCounts]++ // there is room; see add
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
	r.expires = (current + ledgerCounts) * length
	return current
}

// used returns the sliding-counter estimate of the units granted in the last window.
func (r *record) used(newest, length, now int64) int64 {
	total := r.total()
	oldest := r.count(newest + 1) // positions are circular
	if oldest == 0 {
		return total
	}
	into := max(0, now-newest*length)
	return total - oldest + mulDivUp(oldest, length-into, length)
}

// wait returns the time until at most room units are in the window.
func (r *record) wait(newest, length, now, room int64) time.Duration {
	later := r.total()
	for index := newest; ; index++ { // after the last sub-window, no units are left
		start := index * length
		if later <= room {
			return time.Duration(max(0, start-now))
		}
		oldest := r.count(index + 1)
		if index == newest+ledgerBuckets {
			oldest += int64(r.rest) // rest of the newest sub-window
		}
		if later-oldest <= room {
			into := mulDivUp(length, later-room, oldest)
			return time.Duration(max(0, start+into-now))
		}
		later -= oldest
	}
}

// add counts cost units in the newest sub-window, up to the capacity of a count.
func (r *record) add(newest, cost int64) {
	n := r.count(newest) + int64(r.rest)
	n += min(cost, maxCount-n)
	for n > maxStored<<r.shift { // so that rest can be rounded up
		r.halvePrecision()
	}
	r.counts[newest%ledgerCounts] = uint16(n >> r.shift)
	r.rest = uint32(n & (1<<r.shift - 1))
}

// halvePrecision halves all counts, rounded up, except the newest count, which the caller sets.
func (r *record) halvePrecision() {
	for i, n := range r.counts {
		r.counts[i] = n/2 + n%2
	}
	r.shift++
}

// remove takes up to n units out of sub-window index, and returns how many it took.
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

// mulDivUp returns x*y/m rounded up. The product may exceed 64 bits, but the result must not.
func mulDivUp(x, y, m int64) int64 {
	hi, lo := bits.Mul64(uint64(x), uint64(y))
	quotient, rest := bits.Div64(hi, lo, uint64(m))
	if rest > 0 {
		quotient++
	}
	return int64(quotient)
}
