package livepage

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// The promises of Space-Saving hold for any stream: no count is too low, none is too high by more than
// its stated error, and every key with more than total/tracked decisions is there.
func TestSpaceSavingBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clock := time.Unix(0, 0)
		h := newHottest(inClear, func() time.Time { return clock })
		seen := map[string]float64{}
		keys := rapid.IntRange(tracked/2, 4*tracked).Draw(t, "keys")
		skew := rapid.IntRange(1, 4).Draw(t, "skew")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		total := enough - 1 // the sample contains all of them
		for range total {
			key := fmt.Sprint(int(math.Pow(random.Float64(), float64(skew)) * float64(keys)))
			seen[key]++
			h.watch("r", key, false)
		}
		if len(h.entries) > tracked || len(h.where) != len(h.entries) {
			t.Fatalf("%d entries, %d known", len(h.entries), len(h.where))
		}
		found := map[string]bool{}
		for _, e := range h.entries {
			found[e.key.Text] = true
			if real := seen[e.key.Text]; e.count < real || e.count-e.over > real {
				t.Fatalf("%s: count %v, of which %v may be others', but it was seen %v times", e.key.Text, e.count, e.over, real)
			}
		}
		for key, n := range seen {
			if n > float64(total)/tracked && !found[key] {
				t.Fatalf("%s was seen %v times of %d and is not there", key, n, total)
			}
		}
	})
}

// A steady rate is shown correctly at any time after the start, and is forgotten when it ends.
func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHottest(inClear, time.Now)
		for i := range 1200 { // two minutes
			time.Sleep(100 * time.Millisecond)
			for range 5 {
				h.watch("r", "busy", true)
			}
			h.watch("r", fmt.Sprint("once", i), false)
			if seconds := float64(i+1) / 10; i%150 == 149 {
				top := h.top()
				if top[0].Key.Text != "busy" || math.Abs(top[0].PerSecond-50) > 1 || top[0].Denied != 1 {
					t.Errorf("after %v s: %+v, want busy at 50/s", seconds, top[0])
				}
				if len(top) > shownHottest {
					t.Errorf("%d shown", len(top))
				}
			}
		}
		time.Sleep(3 * time.Minute)
		if top := h.top(); len(top) > 0 {
			t.Errorf("three minutes later: %+v", top)
		}
		time.Sleep(1000 * time.Hour)
		h.watch("r", "new", false)
		time.Sleep(time.Second)
		if top := h.top(); len(top) != 1 || math.Abs(top[0].PerSecond-1) > 0.01 {
			t.Errorf("long after: %+v", top)
		}
	})
}

// However many decisions there are, the sample is bounded, and rates stay right.
func TestSampleIsBounded(t *testing.T) {
	clock := time.Unix(0, 0)
	h := newHottest(inClear, func() time.Time { return clock })
	taken := 0
	counting := h.name
	h.name = func(key string) shownKey { taken++; return counting(key) }
	for i := range 3_000_000 { // a million a second
		clock = clock.Add(time.Microsecond)
		key := "hot"
		if i%2 == 0 {
			key = fmt.Sprint(i) // always new, so that h.name is called for each sampled decision
		}
		h.watch("r", key, false)
	}
	if most := 20 * enough; taken > most {
		t.Errorf("%d of 3,000,000 looked at, want %d at most", taken, most)
	}
	top := h.top()
	if len(top) == 0 || top[0].Key.Text != "hot" || math.Abs(top[0].PerSecond-500_000) > 75_000 {
		t.Errorf("%+v, want hot at 500,000/s", top)
	}
	for i := range 40 * 10 { // the sample contains all decisions again when there are few
		clock = clock.Add(100 * time.Millisecond)
		h.watch("r", fmt.Sprint(i), false)
	}
	for i := range 100_000 {
		clock = clock.Add(100 * time.Millisecond)
		h.watch("r", fmt.Sprint(i), false)
	}
	if every := h.every.Load(); every != 1 {
		t.Errorf("at 10 decisions a second one of %d is looked at", every)
	}
}

// The same words as a rule and a key, and as a key and a rule, are counted apart.
func TestRuleAndKeyAreNotConfused(t *testing.T) {
	h := newHottest(inClear, time.Now)
	h.watch("a", "b", false)
	h.watch("b", "a", false)
	h.watch("a", "a", false)
	h.watch("b", "b", false)
	if len(h.entries) != 4 {
		t.Errorf("%d entries for four keys", len(h.entries))
	}
}

// Denials are counted like decisions: one in the sample stands for several, and those of a key that made room for
// another are not the other key's.
func TestDenialsAreOfTheirKeys(t *testing.T) {
	clock := time.Unix(0, 0)
	h := newHottest(inClear, func() time.Time { return clock })
	for i := range tracked {
		h.watch("r", fmt.Sprint(i), true)
	}
	for range 3 {
		h.watch("r", "new", false)
	}
	if top := h.top(); top[0].Key.Text != "new" || top[0].Denied != 0 {
		t.Errorf("%+v, want no denials of the new key", top[0])
	}
	h = newHottest(inClear, func() time.Time { return clock })
	h.every.Store(4)
	for range 4000 {
		h.watch("r", "k", true)
	}
	if top := h.top(); len(top) != 1 || top[0].Denied != 1 {
		t.Errorf("%+v, want denials only", top)
	}
}
