package ledger

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/local"
)

var outage = Outage{Number: 1, Cut: noon, Fleet: 1}

func debtUnits(debts []Debt[string]) (units int64) {
	for _, d := range debts {
		for _, p := range d.Parts {
			units += p.Units
		}
	}
	return units
}

// Law 11: units that were granted without Redis are charged there once, those that
// were taken back or granted by Redis are not, nor those that have left the window.
func TestLaw11JournalHoldsWhatRedisDoesNotKnow(t *testing.T) {
	l := New[string](1000)
	owner := "rule"
	a := &Account[string]{Hash: 7, Window: 160 * time.Second, Quota: 1000, Owner: owner, Key: "key"}
	l.Learn(a, noon, Known{Granted: 100, Free: 900, Capacity: 1000, Sliding: true})
	l.Take(a, outage, noon, 10)
	l.Add(a, noon+10*second, 20)
	l.TakeUpTo(a, outage, noon+20*second, 30)
	l.Reserve(a, outage, noon+20*second, 5, 5) // Redis denied
	l.Undo(a, noon+20*second, 5, false)
	l.Take(a, outage, noon+20*second, 7) // a group of which another denied
	l.Undo(a, noon+20*second, 7, true)
	maybe := *a // Redis was asked for these and did not answer
	maybe.Charged = true
	l.Take(&maybe, outage, noon+20*second, 40)
	l.Add(&maybe, noon+20*second, 50)
	l.Take(&maybe, outage, noon+20*second, 6)
	l.Undo(&maybe, noon+20*second, 6, true)
	l.Return(a, noon+20*second, 4, true) // a refund of what Redis does not know
	l.Return(a, noon+20*second, 8, false)
	if units, keys := l.Waiting(); units != 56 || keys != 1 {
		t.Errorf("%d units of %d keys wait", units, keys)
	}
	debts := l.Uncharged(all, 64, noon+25*second)
	if len(debts) != 1 || debts[0].Owner != owner || debts[0].Key != "key" || fmt.Sprint(debts[0].Parts) !=
		fmt.Sprint([]Part{{6, noon + 5*second}, {20, noon + 15*second}, {30, noon + 22*second + second/2}}) {
		t.Errorf("%+v", debts)
	}
	if units, keys := l.Waiting(); units != 0 || keys != 0 || l.Uncharged(all, 64, noon+25*second) != nil {
		t.Errorf("%d units of %d keys wait after they were taken out", units, keys)
	}

	l.Take(a, outage, noon+30*second, 1)
	l.Take(a, outage, noon+120*second, 2)
	if debts := l.Uncharged(all, 64, noon+200*second); debtUnits(debts) != 2 {
		t.Errorf("a window later %+v", debts)
	}
	l.Take(a, outage, noon+200*second, 1)
	if debts := l.Uncharged(all, 64, noon+400*second); debts != nil {
		t.Errorf("units that have left the window: %+v", debts)
	}
	if lost := l.Lost(all, 0); len(lost) > 0 {
		t.Errorf("lines were lost: %+v", lost)
	}
}

// All keys come in turn, so many at a time.
func TestUnchargedGoesRound(t *testing.T) {
	l, h := New[string](5000), local.NewHasher()
	const keys = 1000
	for i := range keys {
		key := fmt.Sprint(i)
		l.Take(&Account[string]{Hash: h.Hash(key), Window: time.Minute, Quota: 10, Key: key}, outage, noon, 2)
	}
	seen := make(map[string]bool)
	for {
		debts := l.Uncharged(all, 64, noon)
		if debts == nil {
			break
		}
		if len(debts) > 64 {
			t.Fatalf("%d at a time", len(debts))
		}
		for _, d := range debts {
			if seen[d.Key] || len(d.Parts) != 1 || d.Parts[0].Units != 2 {
				t.Errorf("%+v, seen %v", d, seen[d.Key])
			}
			seen[d.Key] = true
		}
	}
	if len(seen) != keys {
		t.Errorf("%d keys, want %d", len(seen), keys)
	}
	for i, lines := range l.lines {
		if lines != nil {
			t.Fatalf("set %d still has lines", i)
		}
	}
}

// Law 7: a journal has no more lines than the table has records, and tells until when
// what it lost matters.
func TestLaw7JournalIsBounded(t *testing.T) {
	l := New[string](ledgerWays)
	l.RuleNumber("r")
	for i := range uint64(3 * ledgerWays) {
		l.Take(&Account[string]{Hash: i << 24, Window: time.Minute, Quota: 100, Key: "key"}, outage, noon, int64(i+1))
	}
	units, keys := l.Waiting()
	if keys != ledgerWays {
		t.Errorf("%d lines", keys)
	}
	debts := l.Uncharged(all, 100, noon)
	if len(debts) != ledgerWays || debtUnits(debts) != units {
		t.Errorf("%d units, said to be %d, of %d keys", debtUnits(debts), units, len(debts))
	}
	if lost := l.Lost(all, noon); len(lost) != 1 || lost[0].Until < noon+minute || lost[0].Until > noon+2*minute {
		t.Errorf("lost lines: %+v, at %d", lost, noon)
	}
	if lost := l.Lost(func(int) bool { return false }, noon); lost != nil {
		t.Errorf("those of no group: %+v", lost)
	}
}

// What is lost is told apart by rule, for as long as it is in a window; and if there are more rules
// than numbers, of all that share one.
func TestLaw11LossesAreOfTheirRules(t *testing.T) {
	l := New[string](1)
	for i := range ruleNumbers {
		l.RuleNumber(fmt.Sprint("rule ", i))
	}
	lost := func(at int64) (rules []string) {
		for _, loss := range l.Lost(all, at) {
			rules = append(rules, loss.Rule)
		}
		slices.Sort(rules)
		return rules
	}
	expect := func(what string, at int64, want ...string) {
		t.Helper()
		if got := lost(at); !slices.Equal(got, want) {
			t.Errorf("%s: lost %q, want %q", what, got, want)
		}
	}
	flooded := l.RuleNumber("rule 7")
	for i := range uint64(ledgerWays + 1) {
		l.Add(&Account[string]{Hash: i + 1, Window: time.Minute, Quota: 100, Rule: flooded, Key: "key"}, noon, 1)
	}
	expect("a line made way", noon, "rule 7")
	notKnown := Debt[string]{Rule: l.RuleNumber("rule 8"), Key: "k"}
	l.Lose(notKnown, noon+minute)
	expect("and some are not known to be charged", noon, "rule 7", "rule 8")
	l.Lose(notKnown, noon+second) // no less for it
	expect("after one that is over sooner", noon+2*second, "rule 7", "rule 8")
	expect("after their windows", noon+2*minute)
	debts := l.Uncharged(all, 1, noon)
	if len(debts) != 1 || debts[0].Rule != flooded {
		t.Errorf("%+v, want a debt of rule 7", debts)
	}
	l.RuleNumber("one too many")
	l.Lose(Debt[string]{Rule: l.RuleNumber("rule 0"), Key: "k"}, noon+minute)
	expect("of a number that two have", noon, "one too many", "rule 0", "rule 7", "rule 8")
}

// Amnesia: each key is charged again once with what this instance granted since the
// time that Redis has forgotten from; what waits to be charged anyway is part of it.
func TestForgottenGrantsAreChargedAgainOnce(t *testing.T) {
	a := &Account[string]{Hash: 7, Window: 160 * time.Second, Quota: 1000, Key: "key"}
	outage := Outage{Number: 1, Cut: noon + 20*second, Fleet: 1}
	for _, test := range []struct{ since, want int64 }{{math.MinInt64, 111}, {noon + 15*second, 110}, {noon + 20*second, 100}} {
		l := New[string](100)
		learn := func(at, granted int64) {
			l.Learn(a, at, Known{Granted: granted, Free: 500, Capacity: 1000, Sliding: true})
		}
		learn(noon, 1)
		learn(noon+10*second, 10)
		l.Take(a, outage, noon+20*second, 100)
		l.Forgotten(all, test.since)
		if units, _ := l.Waiting(); units != 100 {
			t.Errorf("%d units wait before the key is used", units)
		}
		learn(noon+30*second, 1000) // Redis knows of these
		if debts := l.Uncharged(all, 64, noon+30*second); debtUnits(debts) != test.want {
			t.Errorf("since %d: %+v, want %d", test.since, debts, test.want)
		}
		learn(noon+40*second, 1)
		l.Reserve(a, outage, noon+40*second, 1, 1)
		if debts := l.Uncharged(all, 64, noon+40*second); debts != nil {
			t.Errorf("a second time: %+v", debts)
		}
	}
	// Also if nobody uses the key before it is charged.
	l := New[string](100)
	l.Learn(a, noon, Known{Granted: 11, Free: 500, Capacity: 1000, Sliding: true})
	l.Take(a, outage, noon, 100)
	l.Forgotten(all, math.MinInt64)
	if debts := l.Uncharged(all, 64, noon+second); debtUnits(debts) != 111 {
		t.Errorf("%+v, want 111", debts)
	}
	// New keys have nothing to be charged.
	l.Learn(&Account[string]{Hash: 8, Window: time.Minute, Quota: 10, Key: "new"}, noon, Known{1, 9, 10, true})
	if units, _ := l.Waiting(); units != 0 {
		t.Errorf("%d units of a new key wait", units)
	}
}

func all(int) bool { return true }
