package local

import (
	"testing"
	"time"
)

// Law 2: once capacity has come back, by a refund say, the key is asked about anew. No
// other key is forgotten, and a later denial is remembered.
func TestForgetADenial(t *testing.T) {
	d := newDenials(t, 100, time.Minute)
	said := Denial{Cost: 1, RetryAfter: time.Second, NextAfter: time.Second}
	denied := func(hash uint64, key string) bool {
		_, ok := d.Lookup(hash, noon, 1)
		return ok
	}
	d.Forget(9) // never heard of
	d.Remember(7, noon, said)
	d.Remember(8, noon, said)
	d.Forget(7)
	if denied(7, "user") || !denied(8, "other") {
		t.Errorf("forgotten: still denied %v; another key: denied %v", denied(7, "user"), denied(8, "other"))
	}
	d.Remember(7, noon, said)
	if !denied(7, "user") {
		t.Error("a denial after that was not remembered")
	}
	d.Close()
	d.Forget(7) // ristretto would panic
}
