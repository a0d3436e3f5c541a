package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Buckets follow each other without gaps or overlaps, and the last one holds the longest duration.
func TestBuckets(t *testing.T) {
	if got := bucketOf(longest); got != bucketCount-1 {
		t.Errorf("the longest duration is in bucket %d, the last is %d", got, bucketCount-1)
	}
	if bucketOf(-5) != 0 || bucketOf(math.MaxInt64) != bucketCount-1 {
		t.Error("what is out of range is not in the first and last bucket")
	}
	last := -1.0
	for b := range bucketCount {
		middle := middleOf(b)
		if middle <= last {
			t.Fatalf("bucket %d has its middle at %g, the one before at %g", b, middle, last)
		}
		if got := bucketOf(int64(middle)); got != b {
			t.Fatalf("bucket %d has its middle at %g, which is in bucket %d", b, middle, got)
		}
		last = middle
	}
}

func TestPercentileIsNearTheSortedList(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var all, half histogram
	var list []float64
	for i := range 10_000 {
		d := time.Duration(math.Exp(random.NormFloat64()*2 + 10))
		list = append(list, float64(d))
		if i%2 == 0 {
			all.add(d)
		} else {
			half.add(d)
		}
	}
	all.merge(&half)
	slices.Sort(list)
	for _, p := range []float64{0, 1, 50, 99, 99.9, 100} {
		want := list[max(1, int(math.Ceil(p/100*float64(len(list)))))-1]
		if got := all.percentile(p); math.Abs(got-want) > want/64+1 {
			t.Errorf("percentile %g is %g, want %g", p, got, want)
		}
	}
}

func TestPercentileOfFew(t *testing.T) {
	var h histogram
	if got := h.percentile(50); !math.IsNaN(got) {
		t.Errorf("percentile of nothing is %g", got)
	}
	h.add(100)
	h.add(10)
	for p, want := range map[float64]float64{50: 10, 50.1: 100, 99.9: 100} {
		if got := h.percentile(p); got != want {
			t.Errorf("percentile %g of 10 and 100 is %g, want %g", p, got, want)
		}
	}
}
