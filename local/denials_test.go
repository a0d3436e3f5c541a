package local

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"
	"unsafe"
)

// newDenials returns a memory of denials in which a denial takes effect at once. It is closed with the test.
func newDenials(t testing.TB, size int, life time.Duration) *Denials {
	t.Helper()
	d, err := NewDenials(size, life, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// These are times in the tests: a denial is sent at noon.
const (
	noon   = int64(12 * time.Hour)
	second = int64(time.Second)
	minute = int64(time.Minute)
)

// Law 2: "nothing is free until t" holds for every cost, and "n are not free until u" for costs of n and more.
// Neither holds a moment longer.
func TestWhatADenialSays(t *testing.T) {
	// 5 units were denied: no unit is free for 2 s, and 5 are not free for 10 s.
	nothing := Denial{Cost: 5, NextAfter: 2 * time.Second, RetryAfter: 10 * time.Second, ResetAfter: 30 * time.Second}
	// 5 units were denied while 3 were free.
	some := Denial{Cost: 5, RetryAfter: 10 * time.Second, ResetAfter: 30 * time.Second, Remaining: 3}
	for _, test := range []struct {
		name      string
		said      Denial
		after     int64 // since the denial was sent
		cost      int64
		retry     time.Duration // 0 if the cost is not known to be denied
		remaining int64
	}{
		{"nothing free: the same cost", nothing, 0, 5, 10 * time.Second, 0},
		{"nothing free: a larger cost", nothing, 0, 6, 10 * time.Second, 0},
		{"nothing free: a single unit", nothing, 0, 1, 2 * time.Second, 0},
		{"nothing free: one less", nothing, 0, 4, 2 * time.Second, 0},
		{"nothing free, at its end: a single unit", nothing, 2*second - 1, 1, 1, 0},
		{"something free again: a single unit", nothing, 2 * second, 1, 0, 0},
		{"something free again: one less", nothing, 2 * second, 4, 0, 0},
		{"something free again: the same cost", nothing, 2 * second, 5, 8 * time.Second, 0},
		{"something free again, at its end", nothing, 10*second - 1, 5, 1, 0},
		{"free again", nothing, 10 * second, 5, 0, 0},
		{"free again: a larger cost", nothing, 10 * second, 1000, 0, 0},

		{"some free: the same cost", some, 0, 5, 10 * time.Second, 3},
		{"some free: a larger cost", some, 0, 7, 10 * time.Second, 3},
		{"some free: less", some, 0, 4, 0, 0},
		{"some free: a single unit", some, 0, 1, 0, 0},
		{"some free, at its end", some, 10*second - 1, 5, 1, 3},
		{"all free", some, 10 * second, 5, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := newDenials(t, 100, time.Minute)
			d.Remember(7, noon, test.said)
			got, denied := d.Lookup(7, noon+test.after, test.cost)
			want := Denial{}
			if test.retry > 0 {
				want = Denial{
					Cost:       test.cost,
					RetryAfter: test.retry,
					ResetAfter: 30*time.Second - time.Duration(test.after),
					Remaining:  test.remaining,
				}
			}
			if denied != (test.retry > 0) || got != want {
				t.Errorf("%+v, %v; want %+v", got, denied, want)
			}
		})
	}
}

// Law 2: the wait counts from before the request was sent, not from the arrival of the reply. A later denial
// replaces an earlier one.
func TestWaitsCountFromSending(t *testing.T) {
	d := newDenials(t, 100, time.Minute)
	said := Denial{Cost: 1, NextAfter: 2 * time.Second, RetryAfter: 2 * time.Second}
	d.Remember(7, noon, said)
	if got, _ := d.Lookup(7, noon+3*second/2, 1); got.RetryAfter != time.Second/2 {
		t.Errorf("1.5 s after sending, retry after %v; want 0.5 s", got.RetryAfter)
	}
	d.Remember(7, noon+second, said)
	if got, _ := d.Lookup(7, noon+3*second/2, 1); got.RetryAfter != 3*time.Second/2 {
		t.Errorf("0.5 s after sending again, retry after %v; want 1.5 s", got.RetryAfter)
	}
}

// Law 2: Redis's clock shows whole microseconds. If Redis was asked at 1.9 µs, its wait counts from 1 µs, and so
// must the process's.
func TestWaitsCountFromWholeMicroseconds(t *testing.T) {
	d := newDenials(t, 100, time.Minute)
	d.Remember(7, noon+1900, Denial{Cost: 1, NextAfter: 10 * time.Microsecond, RetryAfter: 10 * time.Microsecond})
	if got, denied := d.Lookup(7, noon+10_999, 1); !denied || got.RetryAfter != 1 {
		t.Errorf("just before 11 µs: %+v, %v", got, denied)
	}
	if got, denied := d.Lookup(7, noon+11_000, 1); denied {
		t.Errorf("at 11 µs: %+v", got)
	}
}

// Law 2: a denial is forgotten at the end of its life, counted from sending, however long its wait is. Capacity may
// have come back early.
func TestDenialsHaveACappedLife(t *testing.T) {
	for life, ends := range map[time.Duration]int64{
		0: second, time.Millisecond: second / 1000, time.Second - 1: second - 1, time.Second: second, time.Hour: second,
	} {
		d := newDenials(t, 100, time.Second)
		d.Remember(7, noon, Denial{Cost: 2, NextAfter: time.Hour, RetryAfter: 2 * time.Hour, Life: life})
		for _, cost := range []int64{1, 2, 3} {
			if _, denied := d.Lookup(7, noon+ends-1, cost); !denied {
				t.Errorf("life %v, cost %d: forgotten before its life ended", life, cost)
			}
			if got, denied := d.Lookup(7, noon+ends, cost); denied {
				t.Errorf("life %v, cost %d: %+v after its life ended", life, cost, got)
			}
		}
	}
}

// Law 5: if virtual time steps back, a denial of the later time is not in force. Otherwise it would deny until the clock
// shows that time again.
func TestDenialsOfALaterTime(t *testing.T) {
	d := newDenials(t, 100, time.Second)
	d.Remember(7, noon, Denial{Cost: 1, NextAfter: time.Hour, RetryAfter: time.Hour})
	if _, denied := d.Lookup(7, noon, 1); !denied {
		t.Error("not denied at the same time")
	}
	if got, denied := d.Lookup(7, noon-1, 1); denied {
		t.Errorf("%+v after the clock stepped back", got)
	}
}

// A denial without a wait, such as that of an entry held back by its group, denies nothing.
func TestADenialWithoutAWaitSaysNothing(t *testing.T) {
	d := newDenials(t, 100, time.Second)
	d.Remember(7, noon, Denial{Cost: 1})
	if got, denied := d.Lookup(7, noon, 1); denied {
		t.Errorf("denied: %+v", got)
	}
}

// Law 2: a denial applies neither to another key nor to another rule.
func TestDenialsOfOthers(t *testing.T) {
	d := newDenials(t, 100, time.Minute)
	said := Denial{Cost: 1, NextAfter: time.Minute, RetryAfter: time.Minute}
	hash := func(rule, key string) uint64 { return testHasher.Hash(key) ^ testHasher.Salt(rule) }
	d.Remember(hash("search", "mallory"), noon, said)
	for _, test := range []struct {
		name   string
		hash   uint64
		denied bool
	}{
		{"the same", hash("search", "mallory"), true},
		{"another key", hash("search", "alice"), false},
		{"another rule", hash("login", "mallory"), false},
	} {
		if _, denied := d.Lookup(test.hash, noon, 1); denied != test.denied {
			t.Errorf("%s: denied %v", test.name, denied)
		}
	}
}

func TestHashers(t *testing.T) {
	a, b := NewHasher(), NewHasher()
	if again := a; a.Hash("key") != again.Hash("key") || a.Salt("rule") != again.Salt("rule") {
		t.Error("a hasher does not repeat itself")
	}
	if a.Hash("key") == b.Hash("key") || a.Salt("key") == b.Salt("key") {
		t.Error("two hashers agree: their seeds are not their own")
	}
	if a.Hash("key") == a.Salt("key") {
		t.Error("a rule of a key's name has the key's hash: XORed they are 0, for all such")
	}
}

// Law 7: no more denials are remembered than there is room for.
func TestDenialsAreBounded(t *testing.T) {
	const size = 100
	d := newDenials(t, size, time.Minute)
	if got := d.Len(); got != 0 {
		t.Errorf("%d keys remembered at the start", got)
	}
	for i := range 3 {
		d.Remember(uint64(i), noon, Denial{Cost: 1, NextAfter: time.Minute, RetryAfter: time.Minute})
		d.Remember(uint64(i), noon, Denial{Cost: 1, NextAfter: time.Minute, RetryAfter: time.Minute})
	}
	if got := d.Len(); got != 3 {
		t.Errorf("%d keys remembered, want 3", got)
	}
	for i := range 100 * size {
		key := strconv.Itoa(i)
		d.Remember(testHasher.Hash(key), noon, Denial{Cost: 1, NextAfter: time.Minute, RetryAfter: time.Minute})
		if got := d.Len(); got > size {
			t.Fatalf("%d keys remembered, room is for %d", got, size)
		}
	}
}

func TestNoDenials(t *testing.T) {
	d, err := NewDenials(0, time.Second, false)
	if err != nil {
		t.Fatal(err)
	}
	hash := testHasher.Hash("k")
	d.Remember(hash, noon, Denial{Cost: 1, RetryAfter: time.Minute, NextAfter: time.Minute})
	if _, known := d.Lookup(hash, noon, 1); known || d.Len() != 0 {
		t.Error("something is remembered")
	}
	d.Forget(hash, noon)
	d.Close()
	if _, err := NewDenials(-1, time.Second, false); err == nil {
		t.Error("a memory for -1 keys")
	}
}

func TestClosedDenials(t *testing.T) {
	d := newDenials(t, 100, time.Minute)
	d.Remember(7, noon, Denial{Cost: 1, NextAfter: time.Minute, RetryAfter: time.Minute})
	d.Close()
	d.Close() // harmless
	d.Remember(8, noon, Denial{Cost: 1, NextAfter: time.Minute, RetryAfter: time.Minute})
	for _, hash := range []uint64{7, 8} {
		if got, denied := d.Lookup(hash, noon, 1); denied {
			t.Errorf("a closed memory remembers %+v", got)
		}
	}
	if got := d.Len(); got != 0 {
		t.Errorf("a closed memory holds %d keys", got)
	}
}

// A memory can be closed while others remember and look up denials. ristretto alone would panic, about once in a
// few tries.
func TestCloseDenialsInUse(t *testing.T) {
	for _, synchronous := range []bool{false, true} {
		t.Run(fmt.Sprint("synchronous ", synchronous), func(t *testing.T) {
			for range 10 {
				closeInUse(t, synchronous)
			}
		})
	}
}

func closeInUse(t *testing.T, synchronous bool) {
	h := NewHasher()
	d, err := NewDenials(100, time.Minute, synchronous)
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	var started, users sync.WaitGroup
	for user := range 4 {
		started.Add(1)
		users.Go(func() {
			for i := 0; ; i++ {
				key := strconv.Itoa(100*user + i%50)
				d.Remember(h.Hash(key), noon, Denial{Cost: 1, NextAfter: time.Minute, RetryAfter: time.Minute})
				d.Lookup(h.Hash(key), noon, 1)
				if i == 100 {
					started.Done()
				}
				select {
				case <-closed:
					if i >= 100 {
						return
					}
				default:
				}
			}
		})
	}
	started.Wait()
	d.Close()
	close(closed)
	users.Wait()
}

// Each gate fills whole cache lines. If two gates shared a line, callers of different keys would wait for one
// another.
func TestGatesFillCacheLines(t *testing.T) {
	if size := unsafe.Sizeof(gate{}); size%64 != 0 {
		t.Errorf("a gate has %d bytes, want whole cache lines", size)
	}
}

var testHasher = NewHasher()
