package ledger

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// cutOff cuts an instance off from Redis at the time now, and returns its share. size is the number of instances
// that it last heard of.
func cutOff(in *Ledger[string], a *Account[string], now int64, size int) int64 {
	own := in.Used(a, now)
	return own + in.Reserve(a, Outage{Number: 1, Cut: now, Fleet: size}, now, 1, 0).Free
}

// Law 11: instances that are cut off at different times, while Redis decides for the others, have shares of at most
// N each. Their own grants are part of Redis's grants: N in the window before the first cut, and N for each window
// that has begun between the first cut and the last. Instances that have been cut off for long no longer count.
func TestLaw11SharesOfThoseCutOffApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const window = 16 * time.Second
		quota := rapid.Int64Range(20, 2000).Draw(t, "quota")
		n := rapid.IntRange(2, 10).Draw(t, "instances")
		k := rapid.IntRange(1, n).Draw(t, "cut off")
		account := &Account[string]{Hash: 7, Window: window, Quota: quota}
		redis, instances := New[string](1), make([]*Ledger[string], n)
		for i := range instances {
			instances[i] = New[string](1)
		}
		now, forgotten := noon, rapid.Bool().Draw(t, "those cut off no longer count")
		offer := func() {
			for range rapid.IntRange(0, 40).Draw(t, "requests") {
				now += rapid.Int64Range(0, int64(window)/16).Draw(t, "pause")
				cost := rapid.Int64Range(1, quota/2).Draw(t, "cost")
				in := instances[rapid.IntRange(0, len(instances)-1).Draw(t, "instance")]
				_, _ = whole(redis, 7, window, quota)
				g := redis.Reserve(account, Outage{Number: 1, Fleet: 1}, now, cost, cost)
				in.Learn(account, now, Known{Granted: g.Granted, Free: g.Free, Capacity: quota, Sliding: true})
			}
		}
		offer()
		offer()
		first, sum, parts := int64(0), int64(0), 0.0
		for i := range k {
			size := n
			if forgotten {
				size -= i
			}
			share := cutOff(instances[0], account, now, size)
			if share > quota {
				t.Fatalf("the share of one instance is %d of %d", share, quota)
			}
			if i == 0 {
				first = now
			}
			if instances = instances[1:]; i < k-1 && rapid.Bool().Draw(t, "later") {
				offer()
			}
			sum, parts = sum+share, parts+1/float64(size)
		}
		windows := 1 + math.Ceil(float64(now-first)/float64(window))
		if most := float64(quota)*((1-1/float64(n))*windows+parts) + float64(n); float64(sum) > most {
			t.Fatalf("shares of %d of %d instances, cut off within %v, sum to %d of %d, above %.0f",
				k, n, time.Duration(now-first), sum, quota, most)
		}
	})
}

// Law 11: the bounds for instances that are cut off one after another, a window apart, are reached. They are 1/n +
// 1/(n-1) + ... with even traffic that always uses up the limit, and n if all traffic goes to the instance that is
// cut off next.
func TestLaw11SharesOfThoseCutOffApartReachTheirBound(t *testing.T) {
	const window, quota, n = 16 * time.Second, 1200, 4
	account := &Account[string]{Hash: 7, Window: window, Quota: quota}
	for what, test := range map[string]struct {
		used func(left int) int // how many of those left grant the whole limit
		want float64
	}{
		"even traffic":    {func(left int) int { return left }, 1./4 + 1./3 + 1./2 + 1},
		"it goes to one":  {func(int) int { return 1 }, 4},
		"it is all over":  {func(int) int { return 0 }, 1},
		"it goes to half": {func(left int) int { return (left + 1) / 2 }, 1./2 + 1./2 + 1 + 1},
	} {
		sum, now := int64(0), noon
		for i := range n {
			left := make([]*Ledger[string], n-i)
			for j := range left {
				left[j] = New[string](1)
			}
			using := test.used(len(left))
			now += 2 * int64(window)
			for j := range using {
				left[j].Learn(account, now, Known{Granted: quota / int64(using), Capacity: quota, Sliding: true})
			}
			sum += cutOff(left[0], account, now, n)
		}
		if got := float64(sum) / quota; math.Abs(got-test.want) > 0.01 {
			t.Errorf("%s: shares sum to %.3f of the limit, want %.3f", what, got, test.want)
		}
	}
}
