package main

import (
	"math"
	"regexp"
	"testing"
)

// The most frequent of many keys are drawn as often as Zipf's law says, and every caller goes around all draws.
func TestZipf(t *testing.T) {
	const n = 1000
	w := workload{keys: users("run", n), draws: zipf(n, 100_000)}
	sum := 0.0
	for r := 1; r <= n; r++ {
		sum += math.Pow(float64(r), -1.1)
	}
	pick := w.picker(3)
	drawn := make(map[string]int)
	for range w.draws {
		drawn[pick()]++
	}
	for _, r := range []int{1, 2, 10} {
		want := float64(len(w.draws)) * math.Pow(float64(r), -1.1) / sum
		if got := float64(drawn[w.keys[r-1]]); math.Abs(got-want) > want/10 {
			t.Errorf("key %d was drawn %g times, want about %.0f", r, got, want)
		}
	}
}

// Different workloads of a run have different keys, so that no workload uses up another's keys.
func TestWorkloadsShareNoKeys(t *testing.T) {
	owner := make(map[string]string)
	for _, g := range groups(settings{Keys: 20, Callers: []int{1}, Fleet: []size{{2, 1}}, only: regexp.MustCompile("")}, "run") {
		w := g.workload()
		for _, key := range w.keys {
			if other := owner[key]; other != "" {
				t.Errorf("%s and %s both ask for %s", g.name, other, key)
			}
			owner[key] = g.name
		}
	}
}
