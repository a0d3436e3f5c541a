package ledger

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// Law 11: a flood of keys of one rule pushes out that rule's own records, even if records of another rule have
// fewer units in their windows. The other rule loses none of its units that were granted without Redis.
func TestLaw11AFloodPushesOutItsOwnRule(t *testing.T) {
	const keys, few, heavy = 1 << 14, 1 << 14 / 32, 100
	l, random := New[string](keys), rand.New(rand.NewPCG(1, 2))
	light, flooded := l.RuleNumber("light"), l.RuleNumber("flooded")
	o := Outage{Number: 1, Cut: noon, Fleet: 2}
	account := func(rule uint8, name string, quota int64, window time.Duration) *Account[string] {
		return &Account[string]{Hash: random.Uint64(), Window: window, Quota: quota, Rule: rule, Key: name}
	}
	var others, own []*Account[string]
	for i := range few {
		a := account(light, fmt.Sprint("light ", i), 1000, 24*time.Hour)
		others = append(others, a)
		l.Take(a, o, noon, 1)
	}
	for i := range heavy {
		a := account(flooded, fmt.Sprint("heavy ", i), 10, time.Minute)
		own = append(own, a)
		l.Take(a, o, noon, 5)
	}
	for range 8 * keys {
		l.Take(account(flooded, "flood", 10, time.Minute), o, noon+second, 1)
	}
	for _, a := range others {
		if l.Used(a, noon+second) != 1 {
			t.Fatalf("%s of the other rule was pushed out", a.Key)
		}
	}
	for _, a := range own {
		if l.Used(a, noon+second) != 5 {
			t.Fatalf("%s of the flooded rule was pushed out by keys with less", a.Key)
		}
	}
	lost := l.Lost(func(int) bool { return true }, noon+second)
	if len(lost) != 1 || lost[0].Rule != "flooded" {
		t.Errorf("lost: %+v, want units of the flooded rule only", lost)
	}
}

// A rule may have all records of a set while no other rule needs them. If others do, each rule gets its part.
func TestRulesShareARecordsSet(t *testing.T) {
	l := New[string](1)
	hash := uint64(0)
	flood := func(rule uint8, keys int, units int64) {
		for range keys {
			hash++
			l.Add(&Account[string]{Hash: hash, Window: time.Minute, Quota: 100, Rule: rule, Key: "k"}, Outage{}, noon, units)
		}
	}
	for _, step := range []struct {
		rule  uint8
		units int64
		want  string // records of the rules 1, 2 and 3
	}{
		{1, 50, "[8 0 0]"},
		{2, 1, "[7 1 0]"}, // the others have more units in their windows
		{2, 60, "[4 4 0]"},
		{3, 70, "[2 3 3]"},
		{1, 80, "[3 2 3]"},
		{2, 90, "[3 3 2]"},
	} {
		flood(step.rule, 100, step.units)
		set := &l.sets[0]
		if got := fmt.Sprint([]int{set.recordsOf(1), set.recordsOf(2), set.recordsOf(3)}); got != step.want {
			t.Errorf("after a flood of %d units under rule %d there are %s records of the rules, want %s", step.units, step.rule, got, step.want)
		}
	}
	l.Add(&Account[string]{Hash: 1 << 40, Window: time.Minute, Quota: 100, Rule: 4, Key: "k"}, Outage{}, noon+3*minute, 1)
	if set := &l.sets[0]; set.recordsOf(4) != 1 {
		t.Error("an empty record made no way")
	}
}
