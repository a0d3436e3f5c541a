package local

import (
	"testing"
	"time"
)

// Law 2: once capacity has come back, for example by a refund, the process asks about the key again. No other key
// is forgotten, and a later denial is remembered.
func TestForgetADenial(t *testing.T) {
	d := newDenials(t, 100, time.Minute)
	said := Denial{Cost: 1, RetryAfter: time.Second, NextAfter: time.Second}
	denied := func(hash uint64, key string) bool {
		_, ok := d.Lookup(hash, noon, 1)
		return ok
	}
	d.Forget(9, noon) // never heard of
	d.Remember(7, noon, said)
	d.Remember(8, noon, said)
	d.Forget(7, noon)
	if denied(7, "user") || !denied(8, "other") {
		t.Errorf("forgotten: still denied %v; another key: denied %v", denied(7, "user"), denied(8, "other"))
	}
	d.Remember(7, noon, said)
	if !denied(7, "user") {
		t.Error("a denial after that was not remembered")
	}
	d.Close()
	d.Forget(7, noon) // ristretto alone would panic
}

// Law 2: a denial that was in flight while capacity came back says nothing any more. It arrives after the refund's
// reply if it had a trip of its own.
func TestADenialFromBeforeIsNotRemembered(t *testing.T) {
	d := newDenials(t, 100, time.Minute)
	said := Denial{Cost: 1, RetryAfter: time.Second, NextAfter: time.Second}
	denied := func(now int64) bool {
		_, ok := d.Lookup(7, now, 1)
		return ok
	}
	d.Remember(7, noon, said)
	d.Forget(7, noon+second/2)
	d.Remember(7, noon+second/4, said)
	if denied(noon + second/2) {
		t.Error("a denial that was sent before is remembered")
	}
	d.Remember(7, noon+second/2, said)
	if !denied(noon + second/2) {
		t.Error("one that was sent afterwards is not")
	}
	d.Forget(7, noon+second)
	d.Remember(7, noon+second, Denial{Cost: 10, RetryAfter: time.Second, Remaining: 5})
	d.Remember(7, noon+second*3/4, said)
	if denied(noon + second) {
		t.Error("a denial that was sent before is remembered after one that was sent afterwards")
	}
	d.Remember(7, noon+2*second, Denial{Cost: 1})
	d.Forget(7, noon+3*second)
	d.Remember(7, noon+5*second/2, said)
	d.Remember(7+1<<32, noon+3*second, said) // takes the place in the table
	if denied(noon + 3*second) {
		t.Error("a denial that was sent before is remembered beside the table")
	}
}
