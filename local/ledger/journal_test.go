package ledger

import (
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

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

// Law 11: units that were granted without Redis are charged there once. Units that were taken back, were granted by
// Redis, or have left the window are not charged.
func TestLaw11JournalHoldsWhatRedisDoesNotKnow(t *testing.T) {
	l := New[string](1000)
	owner := "rule"
	a := &Account[string]{Hash: 7, Window: 160 * time.Second, Quota: 1000, Owner: owner, Key: "key"}
	l.Learn(a, noon, Known{Granted: 100, Free: 900, Capacity: 1000, Sliding: true})
	l.Take(a, outage, noon, 10)
	l.Add(a, Outage{}, noon+10*second, 20)
	l.TakeUpTo(a, outage, noon+20*second, 30)
	l.Reserve(a, outage, noon+20*second, 5, 5) // Redis denied these
	l.Undo(a, noon+20*second, 5, false)
	l.Take(a, outage, noon+20*second, 7) // part of a group in which another entry was denied
	l.Undo(a, noon+20*second, 7, true)
	maybe := *a // Redis was asked for these units and did not answer
	maybe.Charged = true
	l.Take(&maybe, outage, noon+20*second, 40)
	l.Add(&maybe, Outage{}, noon+20*second, 50)
	l.Take(&maybe, outage, noon+20*second, 6)
	l.Undo(&maybe, noon+20*second, 6, true)
	l.Return(a, noon+20*second, Oldest, 4, true) // a refund of units that Redis does not know
	l.Return(a, noon+20*second, Oldest, 8, false)
	if units, keys := l.Waiting(); units != 56 || keys != 1 {
		t.Errorf("%d units of %d keys wait", units, keys)
	}
	debts := l.Uncharged(all, 64, noon+25*second, nil)
	if len(debts) != 1 || debts[0].Owner != owner || debts[0].Key != "key" || fmt.Sprint(debts[0].Parts) !=
		fmt.Sprint([]Part{{6, noon + 5*second}, {20, noon + 15*second}, {30, noon + 22*second + second/2}}) {
		t.Errorf("%+v", debts)
	}
	if units, keys := l.Waiting(); units != 0 || keys != 0 || l.Uncharged(all, 64, noon+25*second, nil) != nil {
		t.Errorf("%d units of %d keys wait after they were taken out", units, keys)
	}

	l.Take(a, outage, noon+30*second, 1)
	l.Take(a, outage, noon+120*second, 2)
	if debts := l.Uncharged(all, 64, noon+200*second, nil); debtUnits(debts) != 2 {
		t.Errorf("a window later %+v", debts)
	}
	l.Take(a, outage, noon+200*second, 1)
	if debts := l.Uncharged(all, 64, noon+400*second, nil); debts != nil {
		t.Errorf("units that have left the window: %+v", debts)
	}
	if lost := l.Lost(all, 0); len(lost) > 0 {
		t.Errorf("lines were lost: %+v", lost)
	}
}

// Repeated calls return all keys in turn, a limited number at a time.
func TestUnchargedReturnsAllKeysInTurn(t *testing.T) {
	l, h := New[string](5000), local.NewHasher()
	const keys = 1000
	for i := range keys {
		key := fmt.Sprint(i)
		l.Take(&Account[string]{Hash: h.Hash(key), Window: time.Minute, Quota: 10, Key: key}, outage, noon, 2)
	}
	seen := make(map[string]bool)
	for {
		debts := l.Uncharged(all, 64, noon, nil)
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

// Law 7: a journal has no more lines than the table has records. It tells until when lost lines matter.
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
	debts := l.Uncharged(all, 100, noon, nil)
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

// Law 11: units of a key are charged again without another use of the key if its owner asks for it: once for each
// loss, and only if they are still on record.
func TestLaw11LostUnitsAreChargedAgainOnRequest(t *testing.T) {
	l := New[string](1000)
	a := &Account[string]{Hash: 7, Window: 160 * time.Second, Quota: 1000, Owner: "rule", Key: "key"}
	evicted := &Account[string]{Hash: 8, Window: a.Window, Quota: a.Quota, Owner: "rule", Key: "evicted"}
	l.Learn(a, noon, Known{Granted: 10})
	before := l.Generation()
	if l.ChargeAgain(a, noon, before) {
		t.Error("charged again although nothing was lost")
	}
	l.Forgotten(all, noon-second)
	if l.ChargeAgain(a, noon-100*second, before) {
		t.Error("charged again although it was granted before the loss")
	}
	if l.ChargeAgain(a, noon, l.Generation()) {
		t.Error("charged again although it was granted after the loss")
	}
	if l.ChargeAgain(evicted, noon, before) {
		t.Error("charged again although it is not on record")
	}
	for range 2 {
		if !l.ChargeAgain(a, noon, before) {
			t.Error("not charged again")
		}
		if units, keys := l.Waiting(); units != 10 || keys != 1 {
			t.Errorf("%d units of %d keys wait", units, keys)
		}
	}
}

// Law 11: units that were granted in the sub-window in which the loss began may be lost, and are charged again.
func TestLaw11UnitsOfTheSubWindowOfALossAreChargedAgain(t *testing.T) {
	l := New[string](1000)
	a := &Account[string]{Hash: 7, Window: 160 * time.Second, Quota: 1000, Owner: "rule", Key: "key"}
	l.Learn(a, noon, Known{Granted: 10})
	before := l.Generation()
	l.Forgotten(all, noon+second)
	if !l.ChargeAgain(a, noon, before) {
		t.Error("not charged again")
	}
}

// Law 11: a debt that comes back after its record was evicted is lost, also if other keys of the set have debts.
func TestLaw11DebtsOfEvictedRecordsAreLost(t *testing.T) {
	l := New[string](1) // a single set
	rule := l.RuleNumber("r")
	account := func(i int) *Account[string] {
		return &Account[string]{Hash: uint64(i), Window: time.Minute, Quota: 100, Key: fmt.Sprint(i), Rule: rule}
	}
	l.Take(account(1), outage, noon, 1)
	debts := l.Uncharged(all, 64, noon, nil)
	for i := range ledgerWays {
		l.Take(account(2+i), outage, noon, 50)
	}
	if len(debts) != 1 || l.Lost(all, noon) != nil {
		t.Fatalf("taken out: %+v, lost: %+v", debts, l.Lost(all, noon))
	}
	l.PutBack(debts[0])
	if lost := l.Lost(all, noon); len(lost) != 1 || lost[0].Rule != "r" {
		t.Errorf("lost: %+v", lost)
	}
}

// Law 7: an instance can grant more units in a sub-window than a count can hold. As many as it can hold are charged,
// and then nothing is left in the journal.
func TestLaw7MoreUnitsThanACountHolds(t *testing.T) {
	l := New[string](1000)
	a := &Account[string]{Hash: 7, Window: 160 * time.Second, Quota: 1 << 40, Owner: "rule", Key: "key"}
	for range 3 {
		l.Add(a, Outage{}, noon, math.MaxUint32-1)
	}
	if debts := l.Uncharged(all, 64, noon, nil); debtUnits(debts) != math.MaxUint32 {
		t.Errorf("charged: %+v", debts)
	}
	if units, keys := l.Waiting(); units != 0 || keys != 0 {
		t.Errorf("%d units of %d keys are left", units, keys)
	}
}

// Law 3: units that are counted with less precision are charged again once: what the newest sub-window has below that
// precision is not counted in other sub-windows as well.
func TestLaw3LargeLostUnitsAreChargedAgainOnce(t *testing.T) {
	const granted = 2*maxStored + 1 // is counted as a multiple of 4, and a rest
	l := New[string](1000)
	a := &Account[string]{Hash: 7, Window: 160 * time.Second, Quota: 1 << 30, Owner: "rule", Key: "key"}
	l.Learn(a, noon, Known{Granted: granted})
	before := l.Generation()
	l.Forgotten(all, math.MinInt64)
	l.ChargeAgain(a, noon, before)
	if units, _ := l.Waiting(); units != granted {
		t.Errorf("%d units wait, want %d", units, granted)
	}
}

// Law 11: a key to which Redis grants something does not evict a key whose units are still to be charged there, as
// long as the set has other keys. Otherwise a rule would have to settle for a window.
func TestLaw11UnchargedRecordsAreNotEvictedForChargedOnes(t *testing.T) {
	l := New[string](ledgerWays) // one set
	l.RuleNumber("r")
	hash := uint64(0)
	account := func() *Account[string] {
		hash++
		return &Account[string]{Hash: hash, Window: time.Minute, Quota: 100, Key: fmt.Sprint(hash)}
	}
	grantedByRedis := func() {
		l.Learn(account(), noon+second, Known{Granted: 2, Free: 98, Capacity: 100, Sliding: true})
	}
	l.Take(account(), outage, noon, 1) // the fewest units, but uncharged
	for range 3 * ledgerWays {
		grantedByRedis()
	}
	if lost := l.Lost(all, noon+second); lost != nil {
		t.Fatalf("lost: %+v, though records of charged units could be evicted", lost)
	}
	l = New[string](ledgerWays)
	l.RuleNumber("r")
	for range ledgerWays {
		l.Take(account(), outage, noon+second, 3)
	}
	if _, keys := l.Waiting(); keys != ledgerWays {
		t.Fatalf("%d keys wait, want all of a set", keys)
	}
	grantedByRedis()
	if _, keys := l.Waiting(); keys != ledgerWays-1 || len(l.Lost(all, noon+second)) != 1 {
		t.Errorf("%d keys wait and %+v is lost; want the least of them to have made way", keys, l.Lost(all, noon+second))
	}
	// The record of the most units makes way if it is the only one whose units are charged; otherwise that of the fewest.
	for charged, want := range map[int]int{0: 0, ledgerWays - 1: ledgerWays - 1, -1: 3} {
		l = New[string](ledgerWays)
		accounts := make([]*Account[string], ledgerWays)
		for i := range accounts {
			accounts[i] = account()
			if i == charged {
				l.Learn(accounts[i], noon, Known{Granted: 50, Free: 50, Capacity: 100, Sliding: true})
			} else {
				l.Take(accounts[i], outage, noon, []int64{5, 4, 5, 3}[i%4]+int64(i/4))
			}
		}
		grantedByRedis()
		for i, a := range accounts {
			if gone := l.Used(a, noon+second) == 0; gone != (i == want) {
				t.Errorf("if record %d is charged: record %d made way: %v; want record %d to do so", charged, i, gone, want)
			}
		}
	}
}

// A loss is reported until the lost units of its rule, or all that were lost in the groups asked for, have left their
// windows.
func TestLossesOfGroups(t *testing.T) {
	l := New[string](1)
	l.GroupBy(2, func(string) int { return 0 })
	l.Lose(Debt[string]{Rule: l.RuleNumber("long"), Group: 0}, noon+20*second)
	l.Lose(Debt[string]{Rule: l.RuleNumber("short"), Group: 1}, noon+10*second)
	until := func(in func(int) bool) map[string]int64 {
		m := make(map[string]int64)
		for _, loss := range l.Lost(in, noon) {
			m[loss.Rule] = (loss.Until - noon) / second
		}
		return m
	}
	if got, want := until(all), map[string]int64{"long": 20, "short": 10}; !maps.Equal(got, want) {
		t.Errorf("in all groups %v, want %v", got, want)
	}
	if got, want := until(func(group int) bool { return group == 1 }), map[string]int64{"long": 10, "short": 10}; !maps.Equal(got, want) {
		t.Errorf("in the second group %v, want %v", got, want)
	}
}

// Losses are kept apart by rule, for as long as the lost units are in a window. If there are more rules than
// numbers, a loss counts for all rules that share its number.
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
		l.Add(&Account[string]{Hash: i + 1, Window: time.Minute, Quota: 100, Rule: flooded, Key: "key"}, Outage{}, noon, 1)
	}
	expect("a line made way", noon, "rule 7")
	notKnown := Debt[string]{Rule: l.RuleNumber("rule 8"), Key: "k"}
	l.Lose(notKnown, noon+minute)
	expect("and some are not known to be charged", noon, "rule 7", "rule 8")
	l.Lose(notKnown, noon+second) // a shorter loss does not shorten the earlier one
	expect("after one that is over sooner", noon+2*second, "rule 7", "rule 8")
	expect("after their windows", noon+2*minute)
	debts := l.Uncharged(all, 1, noon, nil)
	if len(debts) != 1 || debts[0].Rule != flooded {
		t.Errorf("%+v, want a debt of rule 7", debts)
	}
	l.RuleNumber("one too many")
	l.Lose(Debt[string]{Rule: l.RuleNumber("rule 0"), Key: "k"}, noon+minute)
	expect("of a number that two have", noon, "one too many", "rule 0", "rule 7", "rule 8")
}

// Rules that come and go share no numbers with those that stay, so a loss is that of few rules. A name that is used
// no more is reported for as long as its loss matters to other instances.
func TestLaw11LossesAreOfRulesInUse(t *testing.T) {
	l := New[string](1)
	stays := l.RuleNumber("stays")
	for i := range 40 * ruleNumbers {
		name := fmt.Sprint("rule ", i)
		if n := l.RuleNumber(name); n == stays {
			t.Fatalf("rule %d shares a number with the only other one", i)
		}
		l.RuleNumber(name) // another rule of the name, such as a reload's
		l.ForgetRule(name)
		if n := l.RuleNumber("stays"); n != stays {
			t.Fatalf("number %d, and then %d", stays, n)
		}
		l.ForgetRule("stays")
		l.ForgetRule(name)
	}
	l.Lose(Debt[string]{Rule: stays}, noon+minute)
	if lost := l.Lost(all, noon); !slices.Equal(lost, []Loss{{"stays", noon + minute}}) {
		t.Fatalf("lost: %v, want only those of the rule that stays", lost)
	}
	l.ForgetRule("stays")
	if lost := l.Lost(all, noon); len(lost) != 1 {
		t.Errorf("lost: %v, want those of a rule that other instances may still have", lost)
	}
	if lost := l.Lost(all, noon+minute); len(lost) != 0 || len(l.rules.named) != 0 {
		t.Errorf("lost: %v, and %d names are kept after the window", lost, len(l.rules.named))
	}
}

// After amnesia, each key is charged again, once, with the units that this instance granted since the time from
// which Redis has lost data. Units that wait to be charged anyway are part of them.
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
		if debts := l.Uncharged(all, 64, noon+30*second, nil); debtUnits(debts) != test.want {
			t.Errorf("since %d: %+v, want %d", test.since, debts, test.want)
		}
		learn(noon+40*second, 1)
		l.Reserve(a, outage, noon+40*second, 1, 1)
		if debts := l.Uncharged(all, 64, noon+40*second, nil); debts != nil {
			t.Errorf("a second time: %+v", debts)
		}
	}
	// The same holds if nobody uses the key before it is charged.
	l := New[string](100)
	l.Learn(a, noon, Known{Granted: 11, Free: 500, Capacity: 1000, Sliding: true})
	l.Take(a, outage, noon, 100)
	l.Forgotten(all, math.MinInt64)
	if debts := l.Uncharged(all, 64, noon+second, nil); debtUnits(debts) != 111 {
		t.Errorf("%+v, want 111", debts)
	}
	// New keys have no units to charge.
	l.Learn(&Account[string]{Hash: 8, Window: time.Minute, Quota: 10, Key: "new"}, noon, Known{1, 9, 10, true})
	if units, _ := l.Waiting(); units != 0 {
		t.Errorf("%d units of a new key wait", units)
	}
}

// Redis may lose data several times. A key that was not used in between is charged with the units that any of the
// losses took. A key that was charged after the first loss is charged with the units that the second took.
func TestForgottenGrantsOfSeveralLosses(t *testing.T) {
	outage := Outage{Number: 1, Cut: noon, Fleet: 1}
	for _, test := range []struct {
		losses []int64
		used   bool // whether the key is used after each loss
		want   []int64
	}{
		{[]int64{noon + 10*second, noon + 20*second}, false, []int64{1110}},
		{[]int64{noon + 10*second, noon + 20*second}, true, []int64{1110, 1100}},
		{[]int64{math.MinInt64, noon + 30*second, noon + 30*second, noon + 30*second, noon + 30*second, noon + 30*second}, false, []int64{1111}},
		{[]int64{math.MinInt64, noon + 30*second, noon + 20*second, noon + 10*second, noon + 30*second, noon + 30*second}, true,
			[]int64{1111, 1000, 1100, 1110, 1000, 1000}},
	} {
		l := New[string](100)
		a := &Account[string]{Hash: 7, Window: 160 * time.Second, Quota: 10_000, Key: "key"}
		for i, units := range []int64{1, 10, 100, 1000} {
			l.Learn(a, noon+int64(i)*10*second, Known{Granted: units, Free: 5000, Capacity: 10_000, Sliding: true})
		}
		charged := []int64{}
		use := func() {
			l.Undo(a, noon+40*second, l.Reserve(a, outage, noon+40*second, 1, 1).Granted, false)
			charged = append(charged, debtUnits(l.Uncharged(all, 64, noon+40*second, nil)))
		}
		for _, since := range test.losses {
			l.Forgotten(all, since)
			if test.used {
				use()
			}
		}
		if !test.used {
			use()
		}
		if !slices.Equal(charged, test.want) {
			t.Errorf("losses since %v, used after each: %v: charged %v, want %v", test.losses, test.used, charged, test.want)
		}
	}
}

// If Redis loses data while a debt that was taken out is not known to be charged yet, the journal gets the debt's
// lost units again, and only those. Remaining returns the other units.
func TestRemainingDebts(t *testing.T) {
	l := New[string](100)
	a := &Account[string]{Hash: 7, Window: 160 * time.Second, Quota: 10_000, Key: "key"}
	outage := Outage{Number: 1, Cut: noon, Fleet: 1}
	for i, units := range []int64{1, 10, 100} {
		l.Take(a, outage, noon+int64(i)*10*second, units)
	}
	debts := l.Uncharged(all, 64, noon+30*second, nil)
	if left := l.Remaining(debts[0]); debtUnits([]Debt[string]{left}) != 111 {
		t.Errorf("without a loss: %+v", left)
	}
	l.Forgotten(all, noon+10*second)
	left := l.Remaining(debts[0])
	if debtUnits([]Debt[string]{left}) != 1 || len(debts[0].Parts) != 3 {
		t.Errorf("%+v is left of %+v", left, debts[0])
	}
	if again := l.Remaining(left); debtUnits([]Debt[string]{again}) != 1 {
		t.Errorf("a second time: %+v", again)
	}
	l.Reserve(a, outage, noon+40*second, 1, 1)
	newer := l.Uncharged(all, 64, noon+40*second, nil)
	if debtUnits(newer) != 110 {
		t.Errorf("%+v in the journal", newer)
	}
	if left := l.Remaining(newer[0]); debtUnits([]Debt[string]{left}) != 110 {
		t.Errorf("of a debt taken out after the loss %+v is left", left)
	}
}

// Law 3: a debt that Redis refused goes back into the journal as if it had never been taken out. Units that Redis
// has lost since are left out, because the journal gets them anyway, and so are units that have left the window.
func TestLaw3DebtsThatArePutBack(t *testing.T) {
	const window = 160 * second // sub-windows of ten seconds
	l := New[string](1)
	l.RuleNumber("r")
	a := &Account[string]{Hash: 7, Window: time.Duration(window), Quota: 10_000, Key: "key"}
	expect := func(what string, at int64, want ...Part) (debts []Debt[string]) {
		t.Helper()
		if debts = l.Uncharged(all, 64, at, nil); len(debts) != 1 || fmt.Sprint(debts[0].Parts) != fmt.Sprint(want) {
			t.Errorf("%s: %+v, want %v", what, debts, want)
		}
		if units, keys := l.Waiting(); units != 0 || keys != 0 {
			t.Errorf("%s: %d units of %d keys wait when all are taken out", what, units, keys)
		}
		return debts
	}
	l.Take(a, outage, noon+6*second, 1)
	l.Take(a, outage, noon+16*second, 10)
	parts := []Part{{1, noon + 8*second}, {10, noon + 15*second}}
	for range 3 {
		l.PutBack(expect("what was put back", noon+20*second, parts...)[0])
	}
	debts := l.Uncharged(all, 64, noon+20*second, nil)
	a.Owner = "new" // the rule was changed
	l.Take(a, outage, noon+28*second, 100)
	l.PutBack(debts[0])
	if units, keys := l.Waiting(); units != 111 || keys != 1 {
		t.Errorf("%d units of %d keys wait", units, keys)
	}
	debts = expect("beside newer units", noon+30*second, append(parts, Part{100, noon + 25*second})...)
	if debts[0].Owner != "new" {
		t.Errorf("the debt is of %q after a change of the rule", debts[0].Owner)
	}

	l.Forgotten(all, noon+10*second)
	l.Learn(a, noon+30*second, Known{}) // the key is used
	l.PutBack(debts[0])
	debts = expect("after a loss", noon+30*second, Part{1, noon + 5*second}, Part{10, noon + 15*second}, Part{100, noon + 25*second})

	l.Take(a, outage, noon+window+10*second, 1000)
	l.PutBack(debts[0])
	debts = expect("a window later", noon+window+20*second, Part{100, noon + 25*second}, Part{1000, noon + window + 15*second})

	for i := range uint64(ledgerWays) {
		l.Take(&Account[string]{Hash: 100 + i, Window: a.Window, Quota: 10_000, Key: "other", Charged: true}, outage, noon+window+10*second, 2000)
	}
	if lost := l.Lost(all, noon+window); lost != nil {
		t.Fatalf("%+v is lost", lost)
	}
	l.PutBack(debts[0])
	if lost := l.Lost(all, noon+window+10*second); len(lost) != 1 || lost[0].Until < noon+2*window+10*second || lost[0].Until > noon+2*window+30*second {
		t.Errorf("of a record that has made way: %+v is lost", lost)
	}
	if units, _ := l.Waiting(); units != 0 {
		t.Errorf("%d units wait", units)
	}
}

func all(int) bool { return true }

// Law 11: the units of a key that Redis has lost are charged again after the key's next use, also if that is a
// denial.
func TestLaw11ADeniedRequestChargesWhatIsLost(t *testing.T) {
	everything := func(int) bool { return true }
	l := New[string](8)
	a := Account[string]{Hash: 7, Window: time.Minute, Quota: 10, Key: "k"}
	l.Learn(&a, noon, Known{Granted: 10, Capacity: 10, Sliding: true})
	l.Forgotten(everything, math.MinInt64)
	if units, keys := l.Waiting(); units != 0 || keys != 0 {
		t.Errorf("%d units of %d keys before its next use", units, keys)
	}
	if g := l.Take(&a, Outage{Number: 1, Cut: noon, Fleet: 1}, noon, 1); g.Granted != 0 {
		t.Errorf("%+v", g)
	}
	if units, keys := l.Waiting(); units != 10 || keys != 1 {
		t.Errorf("%d units of %d keys after it, want 10 of one", units, keys)
	}
}

// Law 3: units granted after a loss of data are not part of the lost units, also if the key is new.
func TestLaw3WhatIsGrantedAfterALossIsNotChargedAgain(t *testing.T) {
	everything := func(int) bool { return true }
	l := New[string](8)
	l.Forgotten(everything, math.MinInt64)
	a := Account[string]{Hash: 7, Window: time.Minute, Quota: 100, Key: "k"}
	charged := a
	charged.Charged = true
	l.Add(&charged, Outage{}, noon, 10)
	l.Learn(&a, noon, Known{Granted: 5, Free: 85, Capacity: 100, Sliding: true})
	if units, keys := l.Waiting(); units != 0 || keys != 0 || l.Used(&a, noon) != 15 {
		t.Errorf("%d units of %d keys are to be charged again, of %d", units, keys, l.Used(&a, noon))
	}
}

// Law 3: units that were used after a loss of data, and that Redis has been charged for, are not part of the lost units,
// also if they are the key's first use since then.
func TestLaw3WhatIsAddedAfterALossIsNotChargedAgain(t *testing.T) {
	l := New[string](8)
	a := Account[string]{Hash: 7, Window: time.Minute, Quota: 100, Key: "k"}
	l.Learn(&a, noon, Known{Granted: 10, Free: 90, Capacity: 100, Sliding: true})
	l.Forgotten(all, noon)
	charged := a
	charged.Charged = true
	l.Add(&charged, Outage{}, noon+1, 5) // in the sub-window of the loss
	if units, _ := l.Waiting(); units != 10 {
		t.Errorf("%d units are to be charged again, want the 10 that are lost", units)
	}
	l.Free(&a, Outage{}, noon+2, 1)
	if units, _ := l.Waiting(); units != 10 || l.Used(&a, noon+2) != 15 {
		t.Errorf("after the next use %d units are to be charged again, of %d", units, l.Used(&a, noon+2))
	}
}

// Law 3: if a key's record makes way, its debts no longer wait, and are not charged to the key that takes its
// place.
func TestLaw3DebtsAreOfTheirKey(t *testing.T) {
	everything := func(int) bool { return true }
	l := New[string](1)
	o := Outage{Number: 1, Cut: noon, Fleet: 2}
	account := func(i int) *Account[string] {
		return &Account[string]{Hash: uint64(i), Window: time.Minute, Quota: 100, Key: strconv.Itoa(i), Owner: "owner of " + strconv.Itoa(i)}
	}
	want := map[string]int64{"9": 20}
	l.Take(account(1), o, noon, 10) // the key with the fewest units
	for i := 2; i <= ledgerWays; i++ {
		l.Take(account(i), o, noon, 50)
		want[strconv.Itoa(i)] = 50
	}
	l.Take(account(9), o, noon, 20)
	if units, keys := l.Waiting(); units != 50*(ledgerWays-1)+20 || keys != ledgerWays {
		t.Errorf("%d units of %d keys wait", units, keys)
	}
	l.Forgotten(everything, math.MinInt64) // changes nothing, because Redis does not know these units
	for _, d := range l.Uncharged(everything, 100, noon, nil) {
		if units := debtUnits([]Debt[string]{d}); units != want[d.Key] || d.Owner != "owner of "+d.Key {
			t.Errorf("%d units of %q, of %q; want %d", units, d.Key, d.Owner, want[d.Key])
		}
		if d.Share < 0.49 || d.Share > 0.51 {
			t.Errorf("a share of %v of %q, want a half", d.Share, d.Key)
		}
		delete(want, d.Key)
	}
	if units, keys := l.Waiting(); units != 0 || keys != 0 || len(want) > 0 {
		t.Errorf("%d units of %d keys wait after all were taken out but %v", units, keys, want)
	}
}

// Units that have left their window, or were given back, no longer wait to be charged.
func TestOnlyUnitsThatCountWaitToBeCharged(t *testing.T) {
	l := New[string](8)
	o := Outage{Number: 1, Cut: noon, Fleet: 1}
	a := Account[string]{Hash: 7, Window: 10 * time.Second, Quota: 100, Key: "k"}
	wait := func(what string, wantUnits, wantKeys int64) {
		t.Helper()
		if units, keys := l.Waiting(); units != wantUnits || keys != wantKeys {
			t.Errorf("%s: %d units of %d keys wait, want %d of %d", what, units, keys, wantUnits, wantKeys)
		}
	}
	l.Take(&a, o, noon, 10)
	wait("granted", 10, 1)
	l.Take(&a, o, noon+20*second, 3)
	wait("granted two windows later", 3, 1)
	l.Return(&a, noon+20*second, Oldest, 1, true)
	wait("one given back", 2, 1)
	l.Undo(&a, noon+20*second, 2, true)
	wait("all given back", 0, 0)
	if keys := l.WaitingIn(func(int) bool { return true }); keys != 0 {
		t.Errorf("%d keys wait in their groups", keys)
	}
}

// Law 11: if a key is not used during many losses of data, all its units since the earliest loss are charged again.
// The number of losses that are kept apart is bounded (law 7).
func TestLaws7And11ManyLosses(t *testing.T) {
	everything := func(int) bool { return true }
	l := New[string](8)
	a := Account[string]{Hash: 7, Window: time.Minute, Quota: 1_000_000, Key: "k"}
	const granted = 100_001 // more than a record counts one by one
	l.Learn(&a, noon, Known{Granted: granted})
	for i := range 3 * forgettingsKept {
		since := noon + int64(time.Hour)
		if i == 1 {
			since = noon
		}
		l.Forgotten(everything, since)
	}
	if n := len(l.groups.forgotten[0]); n > forgettingsKept {
		t.Errorf("%d losses are remembered", n)
	}
	l.Learn(&a, noon, Known{})
	if units, keys := l.Waiting(); units != granted || keys != 1 {
		t.Errorf("%d units of %d keys wait, want %d", units, keys, granted)
	}
	l.Uncharged(everything, 10, noon, nil)
	l.Learn(&a, noon, Known{}) // once is enough
	if units, keys := l.Waiting(); units != 0 || keys != 0 {
		t.Errorf("%d units of %d keys wait once more", units, keys)
	}
}

// A key that owes units owes them also while the units that Redis has lost are being added. Otherwise a reader at
// that moment would take all units for charged.
func TestUnitsWaitWhileMoreAreAdded(t *testing.T) {
	l := New[string](8)
	a := &Account[string]{Hash: 7, Window: 160 * time.Second, Quota: 1000, Key: "key"}
	l.Take(a, outage, noon, 1)
	var losing sync.WaitGroup
	var stop atomic.Bool
	losing.Go(func() {
		for !stop.Load() {
			l.Forgotten(all, math.MinInt64)
			l.Used(a, noon)
			l.Free(a, outage, noon, 1)
		}
	})
	for range 100_000 {
		if l.WaitingIn(all) == 0 {
			t.Error("no key waits to be charged")
			break
		}
	}
	stop.Store(true)
	losing.Wait()
}

// A debt has this instance's share only if an outage has fixed it. What Redis last said is free is no share: under
// GCRA, a debt that is computed from it is as good as paid off, and Redis would grant its units again.
func TestDebtsHaveTheShareOfTheirOutage(t *testing.T) {
	for name, test := range map[string]struct {
		heard  bool
		outage Outage
		want   float64
	}{
		"a key that Redis knows":         {true, Outage{Fleet: 4}, 0},
		"a key that Redis does not know": {false, Outage{Fleet: 4}, 0},
		"an outage":                      {false, Outage{Number: 1, Cut: noon, Fleet: 4}, 0.25},
	} {
		l := New[string](8)
		a := &Account[string]{Hash: 7, Window: time.Minute, Quota: 1000, Key: "k"}
		if test.heard {
			l.Learn(a, noon, Known{Granted: 10, Free: 900, Capacity: 1000, Sliding: true})
		}
		l.Take(a, test.outage, noon, 10)
		debts := l.Uncharged(all, 1, noon, nil)
		if len(debts) != 1 || math.Abs(debts[0].Share-test.want) > 0.001 {
			t.Errorf("%s: %+v, want a share of %v", name, debts, test.want)
		}
	}
}

// A line whose units were taken back keeps no owner. Otherwise a rule that nobody uses any more would stay in memory
// until the line is used again.
func TestLaw7UnitsThatAreTakenBackKeepNoOwner(t *testing.T) {
	l := New[*[64]byte](8)
	take := func() weak.Pointer[[64]byte] {
		a := &Account[*[64]byte]{Hash: 1, Window: time.Minute, Quota: 10, Owner: new([64]byte), Key: "k"}
		if g := l.Take(a, outage, noon, 3); g.Granted != 3 {
			t.Fatalf("%+v", g)
		}
		l.Return(a, noon, noon, 3, true)
		return weak.Make(a.Owner)
	}
	owner := take()
	if units, keys := l.Waiting(); units != 0 || keys != 0 {
		t.Fatalf("%d units of %d keys wait", units, keys)
	}
	runtime.GC()
	if owner.Value() != nil {
		t.Error("the owner is still in memory")
	}
	runtime.KeepAlive(l)
}
