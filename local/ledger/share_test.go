package ledger

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Law 11: whatever happened before the cut, and however old each instance's knowledge is, the shares of a limit N
// among n instances sum to at most N(2 - 1/n), plus a unit for each instance.
func TestLaw11SharesSumToTheirBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Second, time.Hour}).Draw(t, "window")
		quota := rapid.Int64Range(20, 2000).Draw(t, "quota")
		n := rapid.IntRange(1, 10).Draw(t, "instances")
		sliding := rapid.Bool().Draw(t, "sliding")
		account := &Account[string]{Hash: 7, Window: window, Quota: quota}
		o := Outage{Number: 1, Fleet: n}

		redis := New[string](1) // has all grants, decided as an instance would decide them
		instances := make([]*Ledger[string], n)
		for i := range instances {
			instances[i] = New[string](1)
		}
		now := noon
		for range rapid.IntRange(0, 80).Draw(t, "requests") {
			now += rapid.Int64Range(0, int64(window)/8).Draw(t, "pause")
			cost := rapid.Int64Range(1, quota/4).Draw(t, "cost")
			in := instances[rapid.IntRange(0, n-1).Draw(t, "instance")]
			_, _ = whole(redis, 7, window, quota)
			g := redis.Reserve(account, Outage{Number: 1, Fleet: 1}, now, cost, cost)
			in.Learn(account, now, Known{Granted: g.Granted, Free: g.Free, Capacity: quota, Sliding: sliding})
		}
		// From here on, Redis does not answer in time.
		for range rapid.IntRange(0, 40).Draw(t, "misses") {
			cost := rapid.Int64Range(1, quota/4).Draw(t, "cost")
			in := instances[rapid.IntRange(0, n-1).Draw(t, "instance")]
			in.TakeUpTo(account, Outage{Fleet: n}, now, cost)
			now += rapid.Int64Range(0, int64(window)/32).Draw(t, "pause")
		}
		o.Cut = now + rapid.Int64Range(0, int64(window)).Draw(t, "until the cut")
		sum := int64(0)
		for _, in := range instances {
			g := in.Reserve(account, o, o.Cut, 1, 0)
			share := g.Free
			if i := in.set(7).find(7); i >= 0 {
				r := &in.set(7).records[i]
				share = shareOf(r.part, quota)
			}
			sum += share
		}
		if most := 2*quota - quota/int64(n) + int64(n); sum > most {
			t.Fatalf("shares of %d among %d sum to %d, above %d", quota, n, sum, most)
		}
	})
}

// An instance's share is what it has granted itself, plus its part of the units that were free.
func TestShare(t *testing.T) {
	const window = 160 * time.Second
	account := &Account[string]{Hash: 7, Window: window, Quota: 1000}
	o := Outage{Number: 3, Cut: noon + 16*second, Fleet: 4}
	for _, test := range []struct {
		name           string
		granted, free  int64
		learnt         int64 // time after noon
		sliding, again bool
		want           int64
	}{
		{"fresh", 300, 400, 16 * second, true, false, 400},
		{"a tenth of a window old", 300, 400, 0, true, false, 390},
		{"full", 700, 0, 16 * second, true, false, 700},
		{"unknown", 0, 0, 0, true, false, 250},
		{"an outage before, and nothing since", 300, 400, 16 * second, true, true, 300},
		{"under GCRA", 300, 400, 16 * second, false, false, 400},
	} {
		l := New[string](1)
		if test.granted > 0 {
			l.Learn(account, noon+test.learnt, Known{test.granted, test.free, 1000, test.sliding})
		}
		if test.again {
			l.Reserve(account, Outage{Number: 2, Cut: noon + 16*second, Fleet: 1}, noon+16*second, 1, 0)
		}
		g := l.Reserve(account, o, o.Cut, 1, 0)
		if g.Free > test.want-test.granted || g.Free < test.want-test.granted-1 {
			t.Errorf("%s: %d free, want %d less %d", test.name, g.Free, test.want, test.granted)
		}
		// The share is fixed as of the cut, also if the key is first asked for later.
		later := New[string](1)
		if test.granted > 0 {
			later.Learn(account, noon+test.learnt, Known{test.granted, test.free, 1000, test.sliding})
		}
		if after := later.Reserve(account, o, o.Cut+80*second, 1, 0); !test.again && after.Free != g.Free {
			t.Errorf("%s: %d free when it is asked for later, %d at the cut", test.name, after.Free, g.Free)
		}
		taken := l.Take(account, o, o.Cut, 1)
		if after := l.Reserve(account, o, o.Cut+second, 1, 0); after.Free != g.Free-taken.Granted {
			t.Errorf("%s: %d free, then %d", test.name, g.Free, after.Free)
		}
	}
}

// Law 11: units granted because Redis did not answer in time are subtracted from the units that were free. They are
// also own grants; if they only counted as own grants, each would make room for the next.
func TestLaw11MissesMakeNoRoomForMore(t *testing.T) {
	const window = 160 * time.Second
	account := &Account[string]{Hash: 7, Window: window, Quota: 1000, Charged: true}
	for _, sliding := range []bool{true, false} {
		l := New[string](1)
		for _, test := range []struct {
			name         string
			learnt, free int64 // seconds after noon
			at, want     int64
		}{
			{"at once", 0, 400, 0, 100},
			{"after the next reply", 1, 200, 1, 50},
			{"when that is half a window old", 2, 200, 82, 25},
			{"later", -1, 0, 90, 0},
		} {
			if test.learnt >= 0 {
				l.Learn(account, noon+test.learnt*second, Known{Granted: 10, Free: test.free, Capacity: 1000, Sliding: sliding})
			}
			granted := int64(0)
			for range 1000 {
				granted += l.Take(account, Outage{Fleet: 4}, noon+test.at*second, 1).Granted
			}
			// Under algorithms such as GCRA, the units that were free at the first reply have been used up.
			if !sliding && test.at > 0 {
				test.want = 0
			}
			if granted < test.want-1 || granted > test.want {
				t.Errorf("sliding %v, %s: %d granted, want %d", sliding, test.name, granted, test.want)
			}
		}
	}
}

// Law 11: misses do not use up a share that was fixed in the outage before.
func TestLaw11MissesLeaveAFixedShare(t *testing.T) {
	account := &Account[string]{Hash: 7, Window: 160 * time.Second, Quota: 1000, Charged: true}
	l := New[string](1)
	l.Learn(account, noon, Known{Granted: 100, Free: 400, Capacity: 1000, Sliding: true})
	l.Reserve(account, Outage{Number: 1, Cut: noon, Fleet: 4}, noon, 1, 0) // the share is 200
	later := noon + 200*second
	for range 100 {
		l.Take(account, Outage{Fleet: 4}, later, 1)
	}
	if g := l.Reserve(account, Outage{Number: 2, Cut: later, Fleet: 4}, later, 1, 0); g.Free != 100 {
		t.Errorf("%d free after 100 of 200", g.Free)
	}
}

// Under an algorithm whose used units are not those of a window, the smallest number of free units within a window
// counts.
func TestShareOfTheLeastThatWasFree(t *testing.T) {
	const window = 160 * time.Second
	account := &Account[string]{Hash: 7, Window: window, Quota: 1000}
	for _, test := range []struct {
		sliding bool
		later   int64
		want    int64
	}{{true, second, 249}, {false, second, 0}, {false, 161 * second, 249}} {
		l := New[string](1)
		l.Learn(account, noon, Known{1, 0, 1000, test.sliding})
		l.Learn(account, noon+test.later, Known{1, 998, 1000, test.sliding})
		at := noon + test.later
		g := l.Reserve(account, Outage{Number: 1, Cut: at, Fleet: 4}, at, 1, 0)
		if g.Free < test.want-2 || g.Free > test.want+1 {
			t.Errorf("%+v: %d free", test, g.Free)
		}
	}
}

// A share is right however long the window is, and however long the key was not used, although the time of a reply
// has only 32 bits.
func TestShareAfterALongTime(t *testing.T) {
	const day = 24 * 60 * 60 * second
	for _, test := range []struct {
		window   time.Duration
		idle     int64 // after a reply that left nothing free
		used     int   // days of steady use after that time, a few units a day
		least    int64 // units that must be free afterwards
		sliding  bool
		sureFree bool
	}{
		{window: time.Minute, idle: 30 * day, least: 248},                   // in 32 bits, the reply seems to lie in the future
		{window: time.Minute, idle: 45 * day, least: 248},                   // likewise
		{window: 31 * 24 * time.Hour, used: 40, least: 180},                 // the reply is older than the window
		{window: 31 * 24 * time.Hour, used: 400, least: 180},                // long ago
		{window: 366 * 24 * time.Hour, used: 300, least: 0, sureFree: true}, // the reply is still in the window
		{window: 366 * 24 * time.Hour, used: 370, least: 100},               // the reply is no longer in the window
		{window: 31 * 24 * time.Hour, used: 400, least: 180, sliding: true}, // the algorithm says what is free now
		{window: time.Minute, idle: 30 * day, used: 0, least: 248, sliding: true},
	} {
		account := &Account[string]{Hash: 7, Window: test.window, Quota: 1000}
		l, now := New[string](1), int64(noon)
		l.Learn(account, now, Known{1, 0, 1000, test.sliding})
		now += test.idle
		for range test.used {
			now += day
			l.Learn(account, now, Known{1, 900, 1000, test.sliding})
		}
		if test.idle > 0 {
			l.Learn(account, now, Known{1, 998, 1000, test.sliding})
		}
		g := l.Reserve(account, Outage{Number: 1, Cut: now, Fleet: 4}, now, 1, 0)
		if g.Free < test.least || test.sureFree && g.Free > 2 {
			t.Errorf("%+v: %d free", test, g.Free)
		}
	}
}

// Replies that overtake each other do not count as amnesia. A count that has started again does.
func TestForgottenReplies(t *testing.T) {
	account := &Account[string]{Hash: 7, Window: time.Minute, Quota: 1000}
	for _, test := range []struct {
		free      int64
		sliding   bool
		forgotten bool
	}{{900, true, false}, {905, true, false}, {999, true, true}, {999, false, false}} {
		l := New[string](1)
		l.Learn(account, noon, Known{100, 900, 1000, true})
		if forgotten := l.Learn(account, noon+second, Known{0, test.free, 1000, test.sliding}); forgotten != test.forgotten {
			t.Errorf("%+v: forgotten %v", test, forgotten)
		}
		// A reply that counts less than the instance's own grants does not change the free part on record.
		if r := &l.set(7).records[l.set(7).find(7)]; test.sliding && r.part != uint16(900*wholePart/1000) {
			t.Errorf("%+v: learnt %d", test, r.part)
		}
	}
}

// Law 11: a process that began without Redis may have replaced one that used up its share just before. Its own
// share grows evenly within its cold start, or within the window if that is shorter, beginning with one unit that
// is free at once.
func TestLaw11RestartInAnOutageGrantsNoSecondShareAtOnce(t *testing.T) {
	for _, test := range []struct {
		window, coldStart time.Duration
		after             int64 // in seconds
		want              int64 // of a share of 250
	}{
		{160 * time.Second, 200 * time.Second, 0, 1},
		{160 * time.Second, 200 * time.Second, 40, 63},
		{160 * time.Second, 200 * time.Second, 80, 125},
		{160 * time.Second, 200 * time.Second, 160, 250},
		{160 * time.Second, time.Minute, 0, 1},
		{160 * time.Second, time.Minute, 30, 125},
		{160 * time.Second, time.Minute, 60, 250},
		{24 * time.Hour, time.Minute, 0, 1},
		{24 * time.Hour, time.Minute, 6, 25},
		{24 * time.Hour, time.Minute, 3600, 250},
		{24 * time.Hour, 0, 0, 250},
	} {
		account := &Account[string]{Hash: 7, Window: test.window, Quota: 1000, Key: "key"}
		o := Outage{Number: 1, Cut: noon + second, Fleet: 4, ColdStart: &ColdStart{noon, test.coldStart}}
		l, at := New[string](1), noon+test.after*second
		if g := l.TakeUpTo(account, o, at, 1000); g.Granted != test.want {
			t.Errorf("%+v: granted %d", test, g.Granted)
		}
		if test.want == 250 {
			continue
		}
		// Units that are not free yet are free after the stated wait.
		g := l.Take(account, o, at, 100)
		if g.Granted != 0 || g.RetryAfter <= 0 {
			t.Fatalf("%+v: then %+v", test, g)
		}
		at += int64(g.RetryAfter)
		if g := l.Take(account, o, at-int64(time.Millisecond), 100); test.want <= 150 && g.Granted != 0 {
			t.Errorf("%+v: granted before its time", test)
		}
		if g := l.Take(account, o, at, 100); g.Granted != 100 {
			t.Errorf("%+v: not granted when it said: %+v", test, g)
		}
	}
	account := &Account[string]{Hash: 7, Window: time.Minute, Quota: 1000, Key: "key"}
	o := Outage{Number: 1, Cut: noon, Fleet: 4}
	if g := New[string](1).TakeUpTo(account, o, noon, 1000); g.Granted != 250 {
		t.Errorf("an instance that knew Redis granted %d of its 250", g.Granted)
	}
}

// Law 11: instances that are added while Redis is away, and that never heard of the fleet, each add the limit
// divided by the fleet size that they assume. In the first window they add no more than a cold start allows.
func TestLaw11ScalingUpInAnOutage(t *testing.T) {
	const window, quota, members, added = 160 * time.Second, 12_800, 4, 8
	account := &Account[string]{Hash: 7, Window: window, Quota: quota, Key: "key"}
	for _, assumed := range []int{members, 10, members + added} {
		cut := noon + 160*second
		var ledgers []*Ledger[string]
		var outages []Outage
		for range members { // each uses its even part of the limit
			l := New[string](1)
			for at := noon; at < cut; at += second {
				l.Learn(account, at, Known{Granted: quota / members / 160, Free: 0, Capacity: quota, Sliding: true})
			}
			ledgers, outages = append(ledgers, l), append(outages, Outage{Number: 1, Cut: cut, Fleet: members})
		}
		began := cut + 20*second
		for range added {
			ledgers = append(ledgers, New[string](1))
			outages = append(outages, Outage{Number: 1, Cut: began, Fleet: assumed, ColdStart: &ColdStart{began, time.Minute}})
		}
		var granted []int64 // in each second
		most, sum := int64(0), int64(0)
		for at := cut; at < cut+600*second; at += second {
			n := int64(0)
			for i, l := range ledgers {
				if outages[i].Cut <= at {
					n += l.TakeUpTo(account, outages[i], at, quota).Granted
				}
			}
			granted = append(granted, n)
			sum += n
			if len(granted) > 160 {
				sum -= granted[len(granted)-161]
			}
			most = max(most, sum)
		}
		bound := (quota + added*float64(quota)/float64(assumed)) * 17 / 16 // 17/16 is the ledger's own factor
		if float64(most) > bound {
			t.Errorf("assuming %d instances: %d units in a window, bound %.0f", assumed, most, bound)
		}
		if float64(most) < 0.9*bound {
			t.Errorf("assuming %d instances: %d units in a window, so the bound of %.0f says nothing", assumed, most, bound)
		}
	}
}

// A key that was granted units before Redis ever replied has the share of an unknown key, and not only the units
// that it has used so far.
func TestShareOfAKeyThatRedisNeverAnsweredAbout(t *testing.T) {
	l := New[string](8)
	a := Account[string]{Hash: 7, Window: 10 * time.Second, Quota: 100}
	if g := l.Take(&a, Outage{Fleet: 4}, noon, 1); g.Granted != 1 {
		t.Fatalf("%+v", g)
	}
	cut := noon + second/10
	if g := l.TakeUpTo(&a, Outage{Number: 1, Cut: cut, Fleet: 4}, cut, 100); g.Granted != 24 {
		t.Errorf("%+v, want the other 24 of a share of 25", g)
	}
}

// If Redis is lost again before it has replied about the key, the share is not cut down to the units that happen to
// be in use. Nor is it larger than before, or than an even share.
func TestLaw11ShareInTheNextOutage(t *testing.T) {
	l := New[string](8)
	a := Account[string]{Hash: 7, Window: 10 * time.Second, Quota: 100}
	l.Learn(&a, noon, Known{Granted: 10, Free: 80, Capacity: 100, Sliding: true})
	first := Outage{Number: 1, Cut: noon, Fleet: 4}
	if g := l.TakeUpTo(&a, first, noon, 100); g.Granted != 20 { // 10 + 80/4, of which 10 are used
		t.Fatalf("%+v, want 20 units", g)
	}
	// Of the share of 30, one unit has been used in the last window when the next outage begins.
	again := noon + 20*second
	if g := l.Take(&a, first, again, 1); g.Granted != 1 {
		t.Fatalf("%+v", g)
	}
	cut := again + second
	for _, test := range []struct {
		number uint32
		fleet  int
		want   int64
	}{{2, 2, 29}, {3, 4, 24}, {4, 100, 0}} {
		g := l.Reserve(&a, Outage{Number: test.number, Cut: cut, Fleet: test.fleet}, cut, 1, 100)
		l.Undo(&a, cut, g.Granted, false)
		if g.Granted != test.want {
			t.Errorf("fleet of %d: %+v, want %d units", test.fleet, g, test.want)
		}
	}
}

// A share follows what Redis says, also after an outage, and after replies that did not say what was free.
func TestShareAfterRedisSaysAgainWhatIsFree(t *testing.T) {
	for name, before := range map[string]func(*Ledger[string], *Account[string]){
		"an outage": func(l *Ledger[string], a *Account[string]) {
			l.Learn(a, noon, Known{Granted: 10, Free: 80, Capacity: 100, Sliding: true})
			l.Take(a, Outage{Number: 1, Cut: noon, Fleet: 4}, noon, 20)
		},
		"an unusable reply": func(l *Ledger[string], a *Account[string]) { l.Learn(a, noon, Known{Granted: 30}) },
	} {
		l := New[string](8)
		a := &Account[string]{Hash: 7, Window: 10 * time.Second, Quota: 100}
		before(l, a)
		l.Learn(a, noon+second, Known{Granted: 1, Free: 60, Capacity: 100, Sliding: true})
		o := Outage{Number: 2, Cut: noon + second, Fleet: 4}
		if free, _ := l.Free(a, o, noon+second, 1); free != 15 { // 31 + 60/4, of which 31 are used
			t.Errorf("%s: %d units are free, want 15", name, free)
		}
	}
}

// Law 11: units that are used in an outage whether or not they fit make no room for more: the share is fixed before they
// are recorded.
func TestLaw11WhatIsAddedDoesNotRaiseTheShare(t *testing.T) {
	l := New[string](8)
	a := Account[string]{Hash: 7, Window: time.Minute, Quota: 100, Key: "k"}
	l.Learn(&a, noon, Known{Granted: 10, Free: 80, Capacity: 100, Sliding: true})
	o := Outage{Number: 1, Cut: noon, Fleet: 4}
	l.Add(&a, o, noon, 15)
	if g := l.TakeUpTo(&a, o, noon, 100); g.Granted != 5 { // 10 + 80/4, of which 25 are used
		t.Errorf("%+v, want 5 units", g)
	}
}

// Law 11: an instance that has learned nothing since the previous outage may at least keep what it granted itself,
// even if that is more than its part of the limit.
func TestLaw11OwnGrantsAreKeptInTheNextOutage(t *testing.T) {
	l := New[string](8)
	a := Account[string]{Hash: 7, Window: 10 * time.Second, Quota: 100}
	l.Learn(&a, noon, Known{Granted: 10, Free: 90, Capacity: 100, Sliding: true})
	if g := l.Take(&a, Outage{Number: 1, Cut: noon, Fleet: 1}, noon, 50); g.Granted != 50 {
		t.Fatalf("%+v", g)
	}
	cut := noon + second
	next := Outage{Number: 2, Cut: cut, Fleet: 4}
	if free, _ := l.Free(&a, next, cut, 1); free != 0 {
		t.Errorf("%d units are free beside 60 of its own", free)
	}
	if free, _ := l.Free(&a, next, cut+20*second, 1); free != 60 {
		t.Errorf("%d units are free once its own have left the window, want 60", free)
	}
}

// A denial for a key of which this instance was granted nothing does not mean that Redis has lost data.
func TestDenialsOfUnknownKeysSayNothing(t *testing.T) {
	l := New[string](8)
	a := Account[string]{Hash: 7, Window: 10 * time.Second, Quota: 100}
	if l.Learn(&a, noon, Known{Free: 100, Capacity: 100, Sliding: true}) || l.Used(&a, noon) != 0 {
		t.Error("Redis is said to have lost data")
	}
}

// Units that leave the window while they are still on record say nothing about Redis's data: Redis counts them no
// more. Otherwise each key that is used again after a window would make its rule settle.
func TestUnitsThatLeaveTheWindowAreNotMissed(t *testing.T) {
	l := New[string](8)
	a := &Account[string]{Hash: 7, Window: 160 * time.Second, Quota: 100}
	l.Learn(a, noon, Known{Granted: 10, Free: 90, Capacity: 100, Sliding: true})
	now := noon + 169*second // within the sub-window that began at noon plus 160 s
	if l.Learn(a, now, Known{Granted: 1, Free: 99, Capacity: 100, Sliding: true}) {
		t.Error("Redis is said to have lost units that are older than the window")
	}
	if l.Learn(a, now, Known{Granted: 5, Free: 94, Capacity: 100, Sliding: true}) {
		t.Error("Redis is said to have lost data, and has all units of the window")
	}
}

// Law 11: every instance may grant one unit, however small the limit, also for a decision that Redis missed although
// it is not lost.
func TestLaw11EveryInstanceHasOneUnit(t *testing.T) {
	for name, o := range map[string]Outage{"missed": {Fleet: 20}, "an outage": {Number: 1, Cut: noon, Fleet: 20}} {
		l := New[string](8)
		a := &Account[string]{Hash: 7, Window: time.Minute, Quota: 10, Key: "k"}
		if g := l.Take(a, o, noon, 1); g.Granted != 1 {
			t.Errorf("%s: the first unit: %+v", name, g)
		}
		if g := l.Take(a, o, noon, 1); g.Granted != 0 {
			t.Errorf("%s: the second unit: %+v", name, g)
		}
	}
}
