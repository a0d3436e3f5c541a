package ledger

import (
	"math"
	"testing"
	"time"
)

// Units that were charged, that wait, and that Redis has lost are kept apart by group.
func TestGroups(t *testing.T) {
	const quota = 1000
	l := New[string](1000)
	l.GroupBy(2, func(key string) int { return int(key[0] - 'a') })
	in := func(wanted int) func(int) bool { return func(group int) bool { return group == wanted } }
	a := &Account[string]{Hash: 1 << 24, Window: time.Minute, Quota: quota, Key: "a"}
	b := &Account[string]{Hash: 2 << 24, Window: time.Minute, Quota: quota, Key: "b"}
	beside := &Account[string]{Hash: 1<<24 + 1, Window: time.Minute, Quota: quota, Key: "b, in a's set"}
	for _, account := range []*Account[string]{a, b, beside} {
		l.Add(account, Outage{}, noon, 10)
	}
	if l.WaitingIn(in(0)) != 1 || l.WaitingIn(in(1)) != 2 || l.WaitingIn(all) != 3 {
		t.Errorf("%d and %d of %d keys wait", l.WaitingIn(in(0)), l.WaitingIn(in(1)), l.WaitingIn(all))
	}
	if debts := l.Uncharged(in(0), 64, noon, nil); len(debts) != 1 || debts[0].Key != "a" || l.WaitingIn(in(0)) != 0 || l.WaitingIn(in(1)) != 2 {
		t.Fatalf("of the first group: %+v", debts)
	}
	if debts := l.Uncharged(in(1), 64, noon, nil); len(debts) != 2 || l.WaitingIn(all) != 0 {
		t.Fatalf("of the second group: %+v", debts)
	}

	l.Forgotten(in(0), math.MinInt64)
	for _, account := range []*Account[string]{a, b, beside} {
		l.Learn(account, noon, Known{Granted: 1})
	}
	if debts := l.Uncharged(all, 64, noon, nil); len(debts) != 1 || debts[0].Key != "a" || debtUnits(debts) != 10 {
		t.Errorf("after the first group was forgotten: %+v", debts)
	}
	l.Forgotten(in(1), math.MinInt64)
	l.Forgotten(in(0), noon+10*second) // this loss begins later than all grants
	for _, account := range []*Account[string]{a, b, beside} {
		l.Learn(account, noon, Known{Granted: 1})
	}
	if debts := l.Uncharged(all, 64, noon, nil); len(debts) != 2 || debtUnits(debts) != 22 {
		t.Errorf("after both were forgotten: %+v", debts)
	}
}

// Law 3: a loss of data that is recorded while a key's units are put into the journal is of a later generation than the
// key then has. It counts at the key's next use, and not before, too: otherwise it would charge the key twice.
func TestLaw3ALaterLossDoesNotCountYet(t *testing.T) {
	l := New[string](1000)
	before := l.Generation()
	l.Forgotten(all, noon)
	after := l.Generation()
	l.Forgotten(all, noon-second)
	if since, forgotten := l.groups.forgottenSince(0, before, before); forgotten {
		t.Errorf("lost since %d before any loss", since)
	}
	if since, forgotten := l.groups.forgottenSince(0, before, after); !forgotten || since != noon {
		t.Errorf("after the first loss: lost since %d, %v; want %d", since, forgotten, noon)
	}
}
