package ledger

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Laws 3, 7 and 11: units that are granted without the lock are on record, and in the journal, for any call that
// reads them next.
func TestCreditsAreOnRecord(t *testing.T) {
	const hash, window, quota = 7, 160 * time.Second, 100
	for name, ask := range map[string]func(l *Ledger[string], a *Account[string]) (units int64){
		"used": func(l *Ledger[string], a *Account[string]) int64 { return l.Used(a, noon) },
		"free": func(l *Ledger[string], a *Account[string]) int64 {
			free, _ := l.Free(a, Outage{Number: 1, Fleet: 1}, noon, 1)
			return quota - free
		},
		"waiting":   func(l *Ledger[string], a *Account[string]) int64 { units, _ := l.Waiting(); return units },
		"uncharged": func(l *Ledger[string], a *Account[string]) int64 { return debtUnits(l.Uncharged(all, 10, noon+1, nil)) },
		"returned": func(l *Ledger[string], a *Account[string]) int64 {
			l.Return(a, noon, Oldest, 0, true)
			return l.Used(a, noon)
		},
		"another's":   func(l *Ledger[string], a *Account[string]) int64 { add(l, 8, window, noon, 5); return l.Used(a, noon) },
		"a window on": func(l *Ledger[string], a *Account[string]) int64 { return l.Used(a, noon+int64(window)-1) },
	} {
		t.Run(name, func(t *testing.T) {
			l := New[string](1)
			for range 30 {
				if ok, _, _ := take(l, hash, window, quota, noon, 1); !ok {
					t.Fatal("denied")
				}
			}
			if l.set(hash).credit.tag.Load() == 0 {
				t.Fatal("there is no credit: nothing is tested")
			}
			a, _ := whole(l, hash, window, quota)
			if units := ask(l, a); units != 30 {
				t.Errorf("%d units, want 30", units)
			}
		})
	}
}

// A credit is spent only for what it was issued for.
func TestCreditsOfOthers(t *testing.T) {
	const hash, window, quota = 7, 160 * time.Second, 100 // sub-windows of 10 s
	o := Outage{Number: 1, Fleet: 1}
	account := Account[string]{Hash: hash, Window: window, Quota: quota, Key: "key"}
	for name, c := range map[string]struct {
		change func(a *Account[string], o *Outage, now, cost *int64)
		spends bool
	}{
		"the same":            {func(*Account[string], *Outage, *int64, *int64) {}, true},
		"another key":         {func(a *Account[string], _ *Outage, _, _ *int64) { a.Hash++ }, false},
		"another limit":       {func(a *Account[string], _ *Outage, _, _ *int64) { a.Quota = 10 }, false},
		"another's debt":      {func(a *Account[string], _ *Outage, _, _ *int64) { a.Terms++ }, false},
		"another outage":      {func(_ *Account[string], o *Outage, _, _ *int64) { o.Number++ }, false},
		"no outage":           {func(_ *Account[string], o *Outage, _, _ *int64) { o.Number = 0 }, false},
		"maybe charged":       {func(a *Account[string], _ *Outage, _, _ *int64) { a.Charged = true }, false},
		"the sub-window ends": {func(_ *Account[string], _ *Outage, now, _ *int64) { *now += 10*second - 1 }, true},
		"the next sub-window": {func(_ *Account[string], _ *Outage, now, _ *int64) { *now += 10 * second }, false},
		"all that is left":    {func(_ *Account[string], _ *Outage, _, cost *int64) { *cost = quota - 1 }, true},
		"more than is left":   {func(_ *Account[string], _ *Outage, _, cost *int64) { *cost = quota }, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := New[string](1)
			if g := l.Take(&account, o, noon, 1); g.Granted != 1 || g.Free != quota-1 {
				t.Fatalf("%+v", g)
			}
			a, o, now, cost := account, o, int64(noon), int64(1)
			c.change(&a, &o, &now, &cost)
			number := l.set(hash).credit.left.Load() >> 32
			l.Take(&a, o, now, cost)
			if ended := l.set(hash).credit.left.Load()>>32 != number; ended == c.spends {
				t.Errorf("spent from the credit: %v, want %v", !ended, c.spends)
			}
		})
	}
}

// Law 11: many goroutines that spend credits get exactly the quota, while others end the credits in all ways. The
// journal has the same number of units.
func TestLaw11CreditsConcurrently(t *testing.T) {
	const goroutines, tries, quota, window = 8, 4000, 9000, time.Minute
	for range 20 {
		l := New[string](1) // one set
		var granted, taken atomic.Int64
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() {
				for i := range tries {
					if ok, _, _ := take(l, 7, window, quota, noon, 1); ok {
						granted.Add(1)
					}
					switch {
					case (i+g)%500 == 0:
						taken.Add(debtUnits(l.Uncharged(all, 10, noon+1, nil)))
					case (i+g)%300 == 0:
						take(l, 8, window, quota, noon, 1)
					case (i+g)%700 == 0:
						l.Waiting()
					}
				}
			})
		}
		wg.Wait()
		if n := granted.Load(); n != quota {
			t.Fatalf("%d granted, want %d", n, quota)
		}
		others, _ := whole(l, 8, window, quota)
		charged := taken.Load() + debtUnits(l.Uncharged(all, 10, noon+1, nil)) - l.Used(others, noon)
		if charged != quota {
			t.Fatalf("%d units in the journal, want %d", charged, quota)
		}
	}
}

// A credit never has the same word again while a request may still compare it.
func TestNoTwoCreditsHaveTheSameWord(t *testing.T) {
	var c credit
	seen := make(map[uint64]bool)
	for range 5 {
		c.issue(0, 1, noon+second, 10)
		word := c.left.Load()
		if left, ok := c.spend(1, noon, 4); !ok || left != 6 || c.end() != 4 {
			t.Errorf("spent %v, %d left", ok, left)
		}
		if seen[word] || seen[c.left.Load()] {
			t.Errorf("the word %x or %x was there before", word, c.left.Load())
		}
		seen[word], seen[c.left.Load()] = true, true
	}
}
