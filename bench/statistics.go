package main

import (
	"math"
	"slices"
)

// median is the middle value, or the mean of the two middle ones; NaN of none.
// The argument is not changed.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// medianRatio is the median of a subject's values, each divided by the
// reference's of the same round: rounds are neighbours in time, so what slows
// the machine for a while slows both. NaN where nothing can be divided by.
func medianRatio(values, reference []float64) float64 {
	var ratios []float64
	for i := range min(len(values), len(reference)) {
		if reference[i] > 0 {
			ratios = append(ratios, values[i]/reference[i])
		}
	}
	return median(ratios)
}
