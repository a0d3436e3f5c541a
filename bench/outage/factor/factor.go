// Package factor measures what a fleet let through, in exact sliding windows.
package factor

import (
	"math"
	"slices"
	"sort"
)

// Grant is units admitted at one moment, in µs on a clock that all share.
type Grant struct{ At, Units int64 }

// Sort puts grants in order of time, as the functions of this package need them.
func Sort(grants []Grant) {
	slices.SortFunc(grants, func(a, b Grant) int { return int(a.At - b.At) })
}

// Most is the most units in any half-open window of the given length that ends
// right after a grant at a time in [from, to), and when that window ends. Wherever
// such a window is, sliding it to end right after its last grant loses nothing.
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

// Least is the fewest units in any half-open window of the given length that lies
// wholly in [from, to); ok is false if none does.
func Least(grants []Grant, window, from, to int64) (units int64, ok bool) {
	if to-from < window {
		return 0, false
	}
	sums := make([]int64, len(grants)+1) // of the grants before each
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
	// Slid to the right until it is about to gain a grant, or has just lost one, a
	// window has the fewest.
	count(from)
	count(to - window)
	for _, g := range grants {
		count(g.At + 1)
		count(g.At - window)
	}
	return units, true
}
