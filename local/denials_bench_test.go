package local

import (
	"testing"
	"time"
)

// benchLookup is a lookup that finds a denial, or nothing.
func benchLookup(b testing.TB, hit bool) func() {
	d := newDenials(b, 1000, time.Minute)
	const key = "user:12345678"
	hash := testHasher.Hash(key)
	d.Remember(hash, noon, Denial{Cost: 1, NextAfter: time.Minute, RetryAfter: time.Minute})
	if !hit {
		hash++
	}
	return func() {
		if _, denied := d.Lookup(hash, noon+second, 1); denied != hit {
			b.Fatalf("denied %v, want %v", denied, hit)
		}
	}
}

// A lookup allocates nothing, hit or miss. (ristretto takes a new buffer about
// every 64 lookups, which the average rounds away.)
func TestLookupAllocatesNothing(t *testing.T) {
	for _, hit := range []bool{true, false} {
		if n := testing.AllocsPerRun(1000, benchLookup(t, hit)); n != 0 {
			t.Errorf("hit %v: %v allocations a lookup, want none", hit, n)
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	for name, hit := range map[string]bool{"hit": true, "miss": false} {
		lookup := benchLookup(b, hit)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				lookup()
			}
		})
		b.Run(name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					lookup()
				}
			})
		})
	}
}
