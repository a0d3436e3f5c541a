package model

import (
	"testing"

	"pgregory.net/rapid"
)

func TestMaxInWindow(t *testing.T) {
	for _, test := range []struct {
		name          string
		stamps, costs []int64
		window, want  int64
	}{
		{"nothing", nil, nil, 10, 0},
		{"exactly a window apart", []int64{0, 10}, []int64{1, 2}, 10, 2},
		{"just within a window", []int64{0, 9}, []int64{1, 2}, 10, 3},
		{"out of order", []int64{9, 30, 0}, []int64{1, 2, 4}, 10, 5},
		{"a stamp without a cost", []int64{0, 1}, []int64{3}, 10, 3},
		{"no length", []int64{5, 5, 6}, []int64{1, 1, 1}, 0, 0},
	} {
		if got := MaxInWindow(test.stamps, test.costs, test.window); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}

func TestMaxInWindowTriesEveryWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.Int64Range(1, 12).Draw(t, "window")
		stamps := rapid.SliceOf(rapid.Int64Range(0, 30)).Draw(t, "stamps")
		costs := make([]int64, len(stamps))
		for i := range costs {
			costs[i] = rapid.Int64Range(1, 5).Draw(t, "cost")
		}
		var want int64
		for begin := -window; begin <= 30; begin++ {
			var sum int64
			for i, stamp := range stamps {
				if begin <= stamp && stamp < begin+window {
					sum += costs[i]
				}
			}
			want = max(want, sum)
		}
		if got := MaxInWindow(stamps, costs, window); got != want {
			t.Fatalf("%d, want %d", got, want)
		}
	})
}
