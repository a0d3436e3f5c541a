package local

import (
	"sync"
	"testing"
	"time"
)

// These two keys share a place in any table of these tests.
const (
	early = uint64(7)
	late  = early + 1<<56
)

// A denial without a place in front is remembered nevertheless. No key is answered with the denial of another key
// that has the same place.
func TestKeysThatMeetAtAPlace(t *testing.T) {
	d := newDenials(t, 100, time.Minute)
	say := func(hash uint64, sent, remaining int64) {
		d.Remember(hash, sent, Denial{Cost: 5, RetryAfter: 10 * time.Second, Remaining: remaining})
	}
	check := func(hash uint64, now, remaining int64, inFront bool) {
		t.Helper()
		if got, denied := d.Lookup(hash, now, 5); !denied || got.Remaining != remaining {
			t.Errorf("denied %v: %+v; want %d remaining", denied, got, remaining)
		}
		if got := d.front.get(hash) != nil; got != inFront {
			t.Errorf("in front %v, want %v", got, inFront)
		}
	}
	say(early, noon, 1)
	if got, denied := d.Lookup(late, noon, 5); denied {
		t.Errorf("another key's denial: %+v", got)
	}
	say(late, noon+second, 2)
	check(early, noon+second, 1, true)
	check(late, noon+second, 2, false)
	say(early, noon+2*second, 3) // of two denials of a key, the later one is in force
	check(early, noon+2*second, 3, true)
	say(late, noon+12*second, 4) // the place is free now
	check(late, noon+12*second, 4, true)
	d.Forget(early, noon+12*second)
	check(late, noon+12*second, 4, true)
	say(early, noon+12*second, 5)
	d.Forget(late, noon+12*second)
	if got, denied := d.Lookup(late, noon+12*second, 5); denied {
		t.Errorf("forgotten: %+v", got)
	}
	check(early, noon+12*second, 5, false)
	say(early, noon+12*second, 6) // replaces the note that the other key is forgotten
	check(early, noon+12*second, 6, true)
	if got, denied := d.Lookup(late, noon+12*second, 5); denied {
		t.Errorf("forgotten, and another key has its place: %+v", got)
	}
	d.Forget(early, noon+14*second)
	say(late, noon+13*second, 7) // forgetting one key says nothing about another
	check(late, noon+14*second, 7, true)
}

// A denial whose life is over gives up its place, however long its wait was.
func TestADenialGivesUpItsPlaceAfterItsLife(t *testing.T) {
	d := newDenials(t, 100, time.Second)
	said := Denial{Cost: 1, RetryAfter: time.Minute, NextAfter: time.Minute}
	d.Remember(early, noon, said)
	d.Remember(late, noon+second-1, said)
	if d.front.get(late) != nil {
		t.Error("it gave up its place before")
	}
	d.Remember(late, noon+second, said)
	if d.front.get(late) == nil {
		t.Error("it still has its place")
	}
}

// Law 7: there are as many places as keys to remember, rounded up to a power of two.
func TestFrontIsBounded(t *testing.T) {
	for keys, places := range map[int]int{-1: 1, 0: 1, 1: 1, 2: 2, 3: 4, 100: 128, 1024: 1024, 1025: 2048} {
		if got := len(newFront(keys)); got != places {
			t.Errorf("%d places for %d keys, want %d", got, keys, places)
		}
	}
}

// Keys that share a place never get one another's answers while all of them are remembered, forgotten and looked up
// concurrently. The last key to be forgotten stays forgotten.
func TestKeysThatShareAPlaceConcurrently(t *testing.T) {
	d := newDenials(t, 100, time.Minute)
	var users sync.WaitGroup
	for user := range int64(4) {
		users.Go(func() {
			hash := early + uint64(user)<<56
			for i := range int64(500) {
				d.Remember(hash, noon+i, Denial{Cost: 1, RetryAfter: time.Minute, Remaining: user})
				if got, denied := d.Lookup(hash, noon+i, 1); denied && got.Remaining != user {
					t.Errorf("key %d was answered as key %d", user, got.Remaining)
				}
				d.Forget(hash, noon+i)
				if got, denied := d.Lookup(hash, noon+i, 1); denied {
					t.Errorf("key %d, forgotten: %+v", user, got)
				}
			}
		})
	}
	users.Wait()
}

// A lookup stops at once when every denial's life is over, but not before.
func TestUntilWhenDenialsAreLookedUp(t *testing.T) {
	d := newDenials(t, 100, time.Second)
	said := Denial{Cost: 1, RetryAfter: time.Minute}
	d.Remember(7, noon, said)
	d.Remember(8, noon-second/2, said) // sent before, answered after
	d.Remember(9, noon+second/16, said)
	for hash, ends := range map[uint64]int64{7: noon + second, 8: noon + second/2, 9: noon + second + second/16} {
		for now, want := range map[int64]bool{ends - 1: true, ends: false} {
			if _, denied := d.Lookup(hash, now, 1); denied != want {
				t.Errorf("key %d at %v: denied %v", hash, time.Duration(now-noon), denied)
			}
		}
	}
	if until := d.until.Load(); until != noon+second+second/8 {
		t.Errorf("looked up for %v after noon, want 1.125 s: written only if that is over", time.Duration(until-noon))
	}
}
