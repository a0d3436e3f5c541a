// Package factor measures how much a fleet admitted, in exact sliding windows.
package factor

import (
	"math"
	"slices"
	"sort"
)

// Grant is units admitted at one moment, in µs on a clock that all processes share.
type Grant struct{ At, Units int64 }

// Sort sorts grants by time, which the other functions of this package require.
func Sort(grants []Grant) {
	slices.SortFunc(grants, func(a, b Grant) int { return int(a.At - b.At) })
}

// Most returns the most units in any half-open window of the given length that ends right after a grant at a time in
// [from, to), and when that window ends. Other windows need no check: sliding a window so that it ends right after
// its last grant loses no units.
func Most(grants []Grant, window, from, to int64) (units, end int64) {
	oldest, sum := 0, int64(0)
	for _, g := range grants {
		sum += g.Units
		for g.At-grants[oldest].At >= window {
			sum -= grants[oldest].Units
			oldest++
		}
		if g.At >= from && g.At < to && sum > units {
			units, end = sum, g.At
		}
	}
	return units, end
}

// Least returns the fewest units in any half-open window of the given length that lies wholly in [from, to). ok is
// false if there is no such window.
func Least(grants []Grant, window, from, to int64) (units int64, ok bool) {
	if to-from < window {
		return 0, false
	}
	sums := make([]int64, len(grants)+1) // prefix sums: units before each grant
	for i, g := range grants {
		sums[i+1] = sums[i] + g.Units
	}
	before := func(t int64) int64 {
		return sums[sort.Search(len(grants), func(i int) bool { return grants[i].At >= t })]
	}
	units = math.MaxInt64
	count := func(start int64) {
		if start >= from && start+window <= to {
			units = min(units, before(start+window)-before(start))
		}
	}
	// A window has the fewest units when it is about to gain a grant on the right, or has just lost one on the left.
	count(from)
	count(to - window)
	for _, g := range grants {
		count(g.At + 1)
		count(g.At - window)
	}
	return units, true
}
