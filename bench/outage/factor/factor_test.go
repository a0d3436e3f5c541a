package factor

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// Most and Least agree with an inspection of every window.
func TestEveryWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var grants []Grant
		for range rapid.IntRange(0, 12).Draw(t, "grants") {
			grants = append(grants, Grant{rapid.Int64Range(0, 30).Draw(t, "at"), rapid.Int64Range(1, 3).Draw(t, "units")})
		}
		Sort(grants)
		window := rapid.Int64Range(1, 12).Draw(t, "window")
		from := rapid.Int64Range(0, 20).Draw(t, "from")
		to := from + rapid.Int64Range(0, 20).Draw(t, "length")
		sum := func(start int64) (units int64) {
			for _, g := range grants {
				if g.At >= start && g.At < start+window {
					units += g.Units
				}
			}
			return units
		}
		most, least := int64(0), int64(math.MaxInt64)
		for _, g := range grants {
			if g.At >= from && g.At < to {
				most = max(most, sum(g.At-window+1))
			}
		}
		for start := from; start+window <= to; start++ {
			least = min(least, sum(start))
		}
		if got, _ := Most(grants, window, from, to); got != most {
			t.Fatalf("most %d, want %d of %v", got, most, grants)
		}
		if got, ok := Least(grants, window, from, to); ok != (least != math.MaxInt64) || ok && got != least {
			t.Fatalf("least %d %v, want %d of %v", got, ok, least, grants)
		}
	})
}
