package textbook

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestLogIsHalfOpen(t *testing.T) {
	const s = 1_000_000
	log := New(2, 10*time.Second)
	steps := []struct {
		at   int64
		want bool
	}{
		{0, true}, {1 * s, true}, {1 * s, false},
		{10*s - 1, false}, // the unit of time 0 leaves one microsecond later
		{10 * s, true},    // exactly one window old: it has left
		{10 * s, false},
		{11 * s, true},
		{19 * s, false},
		{60 * s, true}, {60 * s, true}, {60 * s, false},
	}
	for _, step := range steps {
		if got := log.Allow("k", step.at); got != step.want {
			t.Errorf("at %d: got %v, want %v", step.at, got, step.want)
		}
	}
	if !log.Allow("other", 60*s) {
		t.Error("keys share a quota")
	}
}

func TestLogOfNothing(t *testing.T) {
	if New(0, time.Second).Allow("k", 1) {
		t.Error("a quota of 0 granted a unit")
	}
}

func TestLogForgets(t *testing.T) {
	log := New(100, time.Millisecond)
	for at := range int64(1_000_000) {
		log.Allow("k", at)
	}
	if n := cap(log.granted.grants["k"].list); n > 1000 {
		t.Errorf("room for %d times, want about 100", n)
	}
}

// A cost fits as a whole or not at all, and its units leave together.
func TestCosts(t *testing.T) {
	log, worst := New(10, time.Millisecond), NewWorst(time.Millisecond)
	for _, step := range []struct {
		at, cost int64
		allowed  bool
	}{{0, 7, true}, {1, 4, false}, {1, 3, true}, {999, 1, false}, {1000, 7, true}, {1000, 1, false}, {1001, 3, true}, {5000, 11, false}} {
		if got := log.AllowN("k", step.at, step.cost); got != step.allowed {
			t.Errorf("%d at %d: %v", step.cost, step.at, got)
		}
		if step.allowed {
			worst.GrantN("k", step.at, step.cost)
		}
	}
	if worst.Max() != 10 {
		t.Errorf("the fullest window has %d", worst.Max())
	}
}

func TestWorstIsHalfOpen(t *testing.T) {
	w := NewWorst(10 * time.Microsecond)
	if w.Max() != 0 {
		t.Errorf("max of nothing is %d", w.Max())
	}
	for _, at := range []int64{0, 10, 20, 29} {
		w.Grant("a", at)
		w.Grant("b", at)
	}
	if w.Max() != 2 { // (19, 29]; 0 and 10 share no window, nor do 10 and 20
		t.Errorf("max is %d, want 2", w.Max())
	}
	w.Grant("b", 29)
	if w.Max() != 3 {
		t.Errorf("max is %d, want 3", w.Max())
	}
	w.Grant("b", 1000)
	if w.Max() != 3 {
		t.Errorf("max fell to %d", w.Max())
	}
}

// Log and Worst agree with their definitions, written as loops over all grants.
func TestAgainstDefinition(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		quota, window := random.Int64N(6)+1, random.Int64N(20)+1
		log := New(quota, time.Duration(window)*time.Microsecond)
		unlimited := NewWorst(time.Duration(window) * time.Microsecond)
		limited := NewWorst(time.Duration(window) * time.Microsecond)
		granted, all := map[string][]int64{}, map[string][]int64{}
		keys := []string{"a", "b"}
		at := random.Int64N(100) - 50
		for range 300 {
			at += random.Int64N(4)
			key := keys[random.IntN(len(keys))]
			all[key] = append(all[key], at)
			unlimited.Grant(key, at)

			want := within(granted[key], at-window, at) < quota
			if got := log.Allow(key, at); got != want {
				t.Fatalf("%d per %d µs at %d: got %v, want %v", quota, window, at, got, want)
			}
			if want {
				granted[key] = append(granted[key], at)
				limited.Grant(key, at)
			}
		}
		if got, want := unlimited.Max(), fullest(all, window); got != want {
			t.Fatalf("worst window of %d µs: got %d, want %d", window, got, want)
		}
		if got, want := limited.Max(), fullest(granted, window); got != want || got > quota {
			t.Fatalf("worst window of %d µs of a log of %d: got %d, want %d", window, quota, got, want)
		}
	}
}

// fullest tries every window, ending at any microsecond.
func fullest(times map[string][]int64, window int64) int64 {
	most := int64(0)
	for _, of := range times {
		for end := of[0]; end <= of[len(of)-1]; end++ {
			most = max(most, within(of, end-window, end))
		}
	}
	return most
}

// within counts the times in (after, until].
func within(times []int64, after, until int64) int64 {
	n := int64(0)
	for _, at := range times {
		if at > after && at <= until {
			n++
		}
	}
	return n
}
