package model

import "sort"

// MaxInWindow returns the most units in any half-open window of the given length, where costs[i] units lie at
// stamps[i]. Stamps may come in any order. If one slice is longer than the other, its surplus is ignored.
func MaxInWindow(stamps, costs []int64, window int64) int64 {
	type grant struct{ stamp, cost int64 }
	grants := make([]grant, min(len(stamps), len(costs)))
	for i := range grants {
		grants[i] = grant{stamps[i], costs[i]}
	}
	sort.Slice(grants, func(i, j int) bool { return grants[i].stamp < grants[j].stamp })

	// Some fullest window ends right after a grant: if a window is moved until its end reaches a grant, grants only
	// enter it at its end. For each grant, oldest is the first grant in the window that ends there.
	var most, sum int64
	oldest := 0
	for _, g := range grants {
		sum += g.cost
		for oldest < len(grants) && g.stamp-grants[oldest].stamp >= window {
			sum -= grants[oldest].cost
			oldest++
		}
		most = max(most, sum)
	}
	return most
}
