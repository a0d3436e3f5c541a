package main

import (
	"math"
	"math/bits"
	"time"
)

// histogram counts durations in buckets that are at most 1/64 of their value wide. Unlike a list, it allocates
// nothing while it counts, however fast a subject is. Measured allocations are therefore the subject's.
type histogram struct {
	counts [bucketCount]uint32
	total  uint64
}

const (
	subBits     = 6             // 64 buckets per power of two
	longest     = 1<<36 - 1     // ns, over a minute; longer durations count as this
	bucketCount = (36 - 5) << 6 // bucketOf(longest) + 1
)

// bucketOf returns the number of a duration's bucket. Below 128 ns each bucket holds one value, and above that 64
// buckets cover each power of two.
func bucketOf(ns int64) int {
	v := uint64(min(max(ns, 0), longest))
	shift := max(0, bits.Len64(v)-subBits-1)
	return shift<<subBits + int(v>>shift)
}

// middleOf returns the middle of a bucket, in ns.
func middleOf(bucket int) float64 {
	if bucket < 2<<subBits {
		return float64(bucket)
	}
	shift := bucket>>subBits - 1
	low := uint64(bucket-shift<<subBits) << shift
	return float64(low) + float64(uint64(1)<<shift-1)/2
}

func (h *histogram) add(d time.Duration) {
	h.counts[bucketOf(int64(d))]++
	h.total++
}

func (h *histogram) merge(other *histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.total += other.total
}

// percentile returns the duration in ns that p percent of the counted durations do not exceed (nearest rank). It
// returns NaN if none was counted.
func (h *histogram) percentile(p float64) float64 {
	if h.total == 0 {
		return math.NaN()
	}
	rank := max(1, uint64(math.Ceil(p/100*float64(h.total))))
	seen := uint64(0)
	for i, n := range h.counts {
		if seen += uint64(n); seen >= rank {
			return middleOf(i)
		}
	}
	panic("the buckets hold less than was counted")
}
