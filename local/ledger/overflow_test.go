package ledger

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Law 11: a caller that floods the table with keys in an outage does not get the share of a key again whose record
// was evicted. It gets at most one unit each time.
func TestLaw11EvictedKeysStartWithArrears(t *testing.T) {
	const quota = 100
	o := Outage{Number: 1, Cut: noon, Fleet: 2}
	for _, at := range []int64{1, quota / 4, quota / 2} { // units at a time
		l := New[string](1) // a single set
		target := &Account[string]{Hash: 1 << 40, Window: time.Minute, Quota: quota, Key: "target"}
		granted, evictions := int64(0), int64(0)
		for now := noon; now < noon+50*second; now += second {
			for l.Take(target, o, now, at).Granted > 0 {
				granted += at
			}
			for i := range uint64(2 * ledgerWays) { // keys with more units, and new ones each time
				l.Take(&Account[string]{Hash: uint64(now) + i + 1, Window: time.Minute, Quota: quota, Key: "flood"}, o, now, quota/2)
				l.Take(&Account[string]{Hash: uint64(now) + i + 1, Window: time.Minute, Quota: quota, Key: "flood"}, o, now, 1)
			}
			if l.Used(target, now) == 0 {
				evictions++
			}
		}
		if share := int64(quota / 2); evictions < 5 || granted > share+evictions {
			t.Errorf("%d at a time: %d granted of a share of %d, after %d evictions", at, granted, share, evictions)
		}
	}
}

// Arrears apply only to keys that come new to a set that overflowed, if their limit is similar to that of the
// evicted record, and as long as that record's units are in their window. They never take a key's last unit. A
// reply from Redis ends them.
func TestArrearsAreOfNewAndSimilarKeys(t *testing.T) {
	const quota = 100
	o := Outage{Number: 1, Cut: noon, Fleet: 1}
	l := New[string](1)
	account := func(i int, window time.Duration) *Account[string] {
		return &Account[string]{Hash: uint64(i), Window: window, Quota: quota, Key: fmt.Sprint(i)}
	}
	free := func(a *Account[string], now int64) int64 {
		units, _ := l.Free(a, o, now, 1)
		return units
	}
	for i := range ledgerWays {
		l.Take(account(i, time.Minute), o, noon, 40)
	}
	if n := free(account(100, time.Minute), noon); n != quota {
		t.Errorf("before anything has made way %d are free", n)
	}
	l.Take(account(101, time.Minute), o, noon, 50)
	newcomer := account(102, time.Minute)
	for name, test := range map[string]struct {
		of   *Account[string]
		at   int64
		want int64
	}{
		"the one that made room for": {account(101, time.Minute), noon, 50},
		"one that is there":          {account(7, time.Minute), noon, 60},
		"a new one":                  {newcomer, noon, 60},
		"a new one of another rule":  {account(103, time.Second), noon, quota},
		"a window later":             {newcomer, noon + 2*minute, quota},
	} {
		if n := free(test.of, test.at); n != test.want {
			t.Errorf("%s: %d are free, want %d", name, n, test.want)
		}
	}
	if g := l.Take(newcomer, o, noon, 61); g.Granted != 0 || g.RetryAfter < 30*time.Second || g.RetryAfter > 2*time.Minute {
		t.Errorf("above what is free: %+v", g)
	}
	l.Learn(newcomer, noon, Known{Granted: 1, Free: 99, Capacity: quota, Sliding: true})
	if n := free(newcomer, noon); n != 99 {
		t.Errorf("once Redis has said what is free, %d are, want 99", n)
	}
	for i := range 100 {
		l.Take(account(1000+i, time.Minute), o, noon, 40)
		if n := free(account(2000+i, time.Minute), noon); n < 1 {
			t.Fatalf("a new key is turned away, after %d", i)
		}
	}
}

// Keys that used up their whole share make way for others. Each key that comes new still has a unit, and no more.
func TestArrearsOfAWholeShareLeaveOneUnit(t *testing.T) {
	const quota = 100
	o := Outage{Number: 1, Cut: noon, Fleet: 1}
	l := New[string](1)
	for i := range 10 * ledgerWays {
		a := &Account[string]{Hash: uint64(i), Window: time.Minute, Quota: quota, Key: fmt.Sprint(i)}
		want := int64(1)
		if i <= ledgerWays { // the next one is the first that finds a record missing
			want = quota
		}
		if g := l.TakeUpTo(a, o, noon, quota); g.Granted != want || g.Free != 0 {
			t.Fatalf("key %d: %+v, want %d granted", i, g, want)
		}
	}
}

// At any time, arrears are at least the units that any of the evicted records has in its window then. They are at
// most the units of a record that is in its window, or was until not long before.
func TestArrearsCoverEvictedRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d arrears
		type made struct{ units, gone int64 }
		var all []made
		for now := int64(0); now < 30; now++ {
			d = d.at(now)
			for range rapid.IntRange(0, 3).Draw(t, "records") {
				m := made{rapid.Int64Range(1, 9).Draw(t, "units"), now + rapid.Int64Range(1, 10).Draw(t, "for")}
				all = append(all, m)
				d.raise(m.units, m.gone)
			}
			most, recent := int64(0), int64(0)
			for _, m := range all {
				if m.gone > now {
					most = max(most, m.units)
				}
				if m.gone > now-20 {
					recent = max(recent, m.units)
				}
			}
			if units := d.at(now).units; units < most || units > recent {
				t.Fatalf("at %d: %+v, want %d to %d units, of %v", now, d, most, recent, all)
			}
		}
	})
}

// Law 11: a key that takes the place of another new key may have been granted what both were granted.
func TestLaw11DebtsAddUp(t *testing.T) {
	const quota = 100
	o := Outage{Number: 1, Cut: noon, Fleet: 1}
	l := New[string](1)
	account := func(i int) *Account[string] {
		return &Account[string]{Hash: uint64(i), Window: time.Minute, Quota: quota, Key: fmt.Sprint(i)}
	}
	l.Take(account(1), o, noon, 10) // the record with the fewest units
	for i := 2; i <= ledgerWays; i++ {
		l.Take(account(i), o, noon, 50)
	}
	// Each newcomer evicts the one before it, which has the fewest units then.
	for i, test := range []struct{ take, free int64 }{{5, 100}, {20, 90}, {30, 90}, {1, 70}} {
		newcomer := account(100 + i)
		if free, _ := l.Free(newcomer, o, noon, 1); free != test.free {
			t.Errorf("newcomer %d: %d units are free, want %d", i, free, test.free)
		}
		l.Take(newcomer, o, noon, test.take)
	}
}

// Arrears that are over leave nothing behind that would make later ones larger.
func TestArrearsThatAreOverAreForgotten(t *testing.T) {
	var d arrears
	d.raise(5, 10)
	d.raise(3, 20)
	if d = d.at(10); d.units != 3 || d.over() != 20 {
		t.Fatalf("%+v, want 3 units until 20", d)
	}
	d.raise(1, 30)
	if d = d.at(20); d.units != 1 || d.over() != 30 {
		t.Errorf("%+v, want 1 unit until 30", d)
	}

	d = arrears{}
	d.raise(5, 10)
	d.raise(3, 20)
	d.raise(5, 30) // these include both
	d.raise(1, 40)
	if d = d.at(30); d.units != 1 || d.over() != 40 {
		t.Errorf("%+v, want 1 unit until 40", d)
	}

	d = arrears{}
	d.raise(5, 10)
	d.raise(3, 20)
	if d = d.at(20); d.units != 0 {
		t.Errorf("%+v, want nothing", d)
	}
}

// Law 11: if a key with arrears is evicted, the arrears that end later count in addition to its own units, too.
func TestLaw11DebtsAddUpUntilTheirEnd(t *testing.T) {
	const quota = 100
	o := Outage{Number: 1, Cut: noon, Fleet: 1}
	l := New[string](1)
	account := func(i int) *Account[string] {
		return &Account[string]{Hash: uint64(i), Window: time.Minute, Quota: quota, Key: fmt.Sprint(i)}
	}
	set := &l.sets[0]
	for i := range ledgerWays {
		l.Take(account(1+i), o, noon+20*second, 50)
	}
	l.Take(account(100), o, noon+20*second, 10)
	*l.overflows[0] = overflow{}
	owed := &l.overflows[0].owed[set.find(100)]
	owed.raise(40, noon+30*second)
	owed.raise(20, noon+60*second)
	l.Take(account(101), o, noon+20*second, 60) // evicts it
	for at, want := range map[int64]int64{29: 50, 30: 30, 59: 30} {
		if d := l.overflow(set).made[recordSize(time.Minute, quota)%sizeClasses].at(noon + at*second); d.units < want {
			t.Errorf("after %d s: %+v, want at least %d units", at, d, want)
		}
	}
}
