package main

import (
	"math"
	"slices"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, tc := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{7}, 7},
		{[]float64{3, 1}, 2},
		{[]float64{9, 1, 4}, 4},
		{[]float64{4, 3, 2, 1}, 2.5},
	} {
		before := slices.Clone(tc.values)
		if got := median(tc.values); got != tc.want {
			t.Errorf("median of %v is %g, want %g", tc.values, got, tc.want)
		}
		if !slices.Equal(before, tc.values) {
			t.Errorf("median changed %v to %v", before, tc.values)
		}
	}
	if got := median(nil); !math.IsNaN(got) {
		t.Errorf("median of nothing is %g", got)
	}
}

func TestMedianRatio(t *testing.T) {
	for name, tc := range map[string]struct{ values, reference, want []float64 }{
		// The machine was ten times slower in round two, but the ratio is the same.
		"by round":  {[]float64{200, 20, 210}, []float64{100, 10, 100}, []float64{2}},
		"by itself": {[]float64{3, 5}, []float64{3, 5}, []float64{1}},
		"by zero":   {[]float64{3, 5}, []float64{0, 5}, []float64{1}},
		"by none":   {[]float64{3, 5}, []float64{0, 0}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := medianRatio(tc.values, tc.reference)
			if tc.want == nil && !math.IsNaN(got) || tc.want != nil && got != tc.want[0] {
				t.Errorf("%v by %v is %g, want %v", tc.values, tc.reference, got, tc.want)
			}
		})
	}
}
