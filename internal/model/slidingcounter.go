package model

import (
	"cmp"
	"math/big"
	"slices"

	"github.com/tierlimit/tierlimit/limit"
)

// slidingCounter counts units in buckets of window/k, aligned to the epoch: bucket i has the times t with i <=
// t*k/window < i+1. Besides the last k buckets, the one before them counts: the whole bucket if strict, otherwise
// the part of it that is less than a window old.
type slidingCounter struct {
	quota, window, k int64
	rounding         limit.Rounding
	buckets          []bucket // the buckets that are not empty and may count, oldest first
}

type bucket struct{ index, units int64 }

func newSlidingCounter(quota, window, k int64, rounding limit.Rounding) *slidingCounter {
	return &slidingCounter{quota: quota, window: window, k: k, rounding: rounding}
}

// locate returns the bucket that t lies in, and how much of that bucket has
// passed, as a numerator over window. The length of a bucket need not be a whole
// number of microseconds, but both results are exact.
func (c *slidingCounter) locate(t int64) (index, elapsed int64) {
	windows, rest := t/c.window, t%c.window
	return windows*c.k + rest*c.k/c.window, rest * c.k % c.window
}

// start is the first whole microsecond that lies in the bucket, or after it.
func (c *slidingCounter) start(index int64) int64 {
	windows, rest := index/c.k, index%c.k
	return windows*c.window + ceilDiv(rest*c.window, c.k)
}

func (c *slidingCounter) used(t int64) int64 {
	current, elapsed := c.locate(t)
	var whole, oldest int64
	for _, b := range c.buckets {
		switch {
		case b.index > current-c.k:
			whole += b.units
		case b.index == current-c.k:
			oldest = b.units
		}
	}
	if c.rounding == limit.Strict {
		return whole + oldest
	}
	return whole + mulDivCeil(oldest, c.window-elapsed, c.window)
}

func (c *slidingCounter) free(t int64) int64 { return max(0, c.quota-c.used(t)) }

func (c *slidingCounter) charge(t, cost int64) {
	current, _ := c.locate(t)
	c.forget(current)
	c.add(current, cost)
}

// forget drops the buckets that no longer count; slidingLog.forget says when it may be called.
func (c *slidingCounter) forget(current int64) {
	c.buckets = slices.DeleteFunc(c.buckets, func(b bucket) bool { return b.index < current-c.k })
}

func (c *slidingCounter) add(index, units int64) {
	at, found := slices.BinarySearchFunc(c.buckets, index, func(b bucket, i int64) int { return cmp.Compare(b.index, i) })
	if !found {
		c.buckets = slices.Insert(c.buckets, at, bucket{index: index})
	}
	c.buckets[at].units += units
}

// chargePast adds units to the buckets that they belong to, as far as these still count.
func (c *slidingCounter) chargePast(t int64, past []Past) (charged int64, changed bool) {
	current, _ := c.locate(t)
	counting := c.clone().(*slidingCounter)
	counting.forget(current)
	most := room(c.quota, counting.used(t))
	for _, p := range past {
		index, _ := c.locate(t - p.Age)
		units := min(p.Units, most-charged)
		if index >= current-c.k && units > 0 {
			counting.add(index, units)
			charged += units
		}
	}
	if charged > 0 {
		c.buckets = counting.buckets
	}
	return charged, charged > 0
}

// refund gives back nothing of a charge that is a window old, though its bucket may still count. Another algorithm
// may have forgotten that charge since, and the units in the bucket are then those of other charges.
func (c *slidingCounter) refund(t, stamp, _, units int64) (given int64, changed bool) {
	if stamp <= t-c.window {
		return 0, false
	}
	charged, _ := c.locate(stamp)
	for i := range c.buckets {
		if b := &c.buckets[i]; b.index == charged {
			given = min(units, b.units)
			b.units -= given
		}
	}
	return given, given > 0
}

// wait uses binary search, because waiting never reduces the number of free units.
func (c *slidingCounter) wait(t, cost int64) int64 {
	low, high := int64(0), c.reset(t)
	for low < high {
		middle := low + (high-low)/2
		if c.free(t+middle) >= cost {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}

func (c *slidingCounter) reset(t int64) int64 {
	for _, b := range slices.Backward(c.buckets) {
		if b.units > 0 {
			return max(0, c.start(b.index+c.k+1)-t)
		}
	}
	return 0
}

func (c *slidingCounter) held() (units int64) {
	for _, b := range c.buckets {
		units += b.units
	}
	return units
}

// past returns each unit at the end of its bucket.
func (c *slidingCounter) past(newest, _, _ int64) (past []logEntry) {
	for _, b := range slices.Backward(c.buckets) {
		past = append(past, logEntry{min(newest, c.start(b.index+1)-1), b.units})
	}
	return past
}

func (c *slidingCounter) clone() tally {
	d := *c
	d.buckets = slices.Clone(c.buckets)
	return &d
}

// ceilDiv returns a/b rounded up, for a >= 0 and b > 0.
func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// mulDivCeil returns a*b/c rounded up, for a, b >= 0 and c > 0. The product may be longer than 64 bits.
func mulDivCeil(a, b, c int64) int64 {
	n := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
	n.Add(n, big.NewInt(c-1))
	return n.Div(n, big.NewInt(c)).Int64()
}
