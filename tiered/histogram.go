package tiered

import (
	"math"
	"slices"
	"sync/atomic"
)

// histogram counts values in buckets, in a few cache lines and with two atomic additions. client_golang's
// histogram took a tenth of a trip's time on a machine that ran so many processes that caches were cold
// each time.
type histogram struct {
	bounds []float64         // upper bounds, ascending
	sum    atomic.Uint64     // the bits of a float64
	counts [16]atomic.Uint64 // by the first bound that is not below the value; the last is for values above all bounds
}

func newHistogram(bounds []float64) *histogram { return &histogram{bounds: bounds} }

func (h *histogram) observe(v float64) {
	i, _ := slices.BinarySearch(h.bounds, v)
	h.counts[i].Add(1)
	for {
		old := h.sum.Load()
		if h.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+v)) {
			return
		}
	}
}

func (h *histogram) stats() Histogram {
	s := Histogram{Bounds: slices.Clone(h.bounds), Counts: make([]uint64, len(h.bounds)+1), Sum: math.Float64frombits(h.sum.Load())}
	for i := range s.Counts {
		s.Counts[i] = h.counts[i].Load()
	}
	return s
}
