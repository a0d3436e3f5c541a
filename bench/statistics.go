package main

import (
	"math"
	"slices"
)

// median returns the middle value, or the mean of the two middle values, or NaN if there are none. It does not change
// its argument.
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

// medianRatio returns the median of a subject's values, each divided by the reference's value in the same round.
// Rounds are neighbors in time, so whatever slows the machine for a while slows both. It returns NaN if there is
// nothing to divide by.
func medianRatio(values, reference []float64) float64 {
	var ratios []float64
	for i := range min(len(values), len(reference)) {
		if reference[i] > 0 {
			ratios = append(ratios, values[i]/reference[i])
		}
	}
	return median(ratios)
}
