package local

import (
	"testing"
	"time"
)

// found is the result of a lookup.
type found struct{ hit, inFront bool }

var founds = map[string]found{"hit": {true, true}, "behind": {true, false}, "miss": {false, true}}

// benchLookup returns a lookup that finds a denial in the front or behind it, or finds nothing.
func benchLookup(b testing.TB, f found) func() {
	d := newDenials(b, 1000, time.Minute)
	const key = "user:12345678"
	hash := testHasher.Hash(key)
	d.Remember(hash, noon, Denial{Cost: 1, NextAfter: time.Minute, RetryAfter: time.Minute})
	if !f.inFront {
		d.front.clear()
	}
	if !f.hit {
		hash++
	}
	return func() {
		if _, denied := d.Lookup(hash, noon+second, 1); denied != f.hit {
			b.Fatalf("denied %v, want %v", denied, f.hit)
		}
	}
}

// A lookup allocates nothing, hit or miss. (ristretto takes a new buffer about every 64 lookups, which the average
// rounds away.)
func TestLookupAllocatesNothing(t *testing.T) {
	for name, f := range founds {
		if n := testing.AllocsPerRun(1000, benchLookup(t, f)); n != 0 {
			t.Errorf("%s: %v allocations a lookup, want none", name, n)
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	for name, f := range founds {
		lookup := benchLookup(b, f)
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
