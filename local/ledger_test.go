package local

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/tierlimit/tierlimit/limit"
)

// Law 7: a record is one cache line, and a table never grows.
func TestLedgerSize(t *testing.T) {
	if size := unsafe.Sizeof(record{}); size != 64 {
		t.Errorf("a record has %d bytes, want 64", size)
	}
	if size := unsafe.Sizeof(ledgerSet{}); size%64 != 0 {
		t.Errorf("a set has %d bytes, want whole cache lines", size)
	}
	for _, keys := range []int{1, 7, 8, 9, 16, 17, 63, 64, 65, 1000, 1024, 1025, 100_000} {
		l := NewLedger(keys)
		records := len(l.sets) * ledgerWays
		if records < keys || records >= 2*keys && records > ledgerWays || int(l.mask) != len(l.sets)-1 {
			t.Errorf("a table for %d keys has %d records in %d sets, mask %b", keys, records, len(l.sets), l.mask)
		}
	}
	if start := uintptr(unsafe.Pointer(&NewLedger(100).sets[0])); start%64 != 0 {
		t.Errorf("records start at %#x, which is not where a cache line does", start)
	}
}

// 10 units per 80 s, which makes sub-windows of 10 s; noon is the start of one.
func TestTake(t *testing.T) {
	const quota, window = 10, 80 * time.Second
	l := NewLedger(100)
	for _, test := range []struct {
		after   int64 // since noon
		cost    int64
		granted bool
		free    int64
		retry   time.Duration
	}{
		{0, 6, true, 4, 0},
		{0, 5, false, 4, 80*time.Second + 1666666667}, // one of 6 units must leave: a sixth of 10 s
		{0, 4, true, 0, 0},
		{5 * second, 1, false, 0, 76 * time.Second}, // one of 10 units
		{80 * second, 1, false, 0, time.Second},
		{81*second - 1, 1, false, 0, 1},
		{81 * second, 1, true, 0, 0},
		{85 * second, 4, true, 0, 0},                   // half of the 10 are left, and the one
		{90 * second, 5, true, 0, 0},                   // none of the 10
		{160 * second, 10, false, 0, 20 * time.Second}, // the last five, of noon and 90 s, must have left
		{180 * second, 10, true, 0, 0},
	} {
		granted, free, retry := l.Take(7, window, quota, noon+test.after, test.cost)
		if granted != test.granted || free != test.free || retry != test.retry {
			t.Errorf("%d units %v after noon: granted %v, %d free, retry after %v; want %v, %d, %v",
				test.cost, time.Duration(test.after), granted, free, retry, test.granted, test.free, test.retry)
		}
	}
}

// Law 11: what was granted before Redis was lost counts, so an outage starts with
// no second quota. It counts for its own key only.
func TestGrantsBeforeTheOutageCount(t *testing.T) {
	l := NewLedger(100)
	l.Add(7, time.Minute, noon, 60)
	l.Add(7, time.Minute, noon+second, 10)
	if granted, free, _ := l.Take(7, time.Minute, 100, noon+2*second, 31); granted || free != 30 {
		t.Errorf("31 of 100 after 70: granted %v, %d free", granted, free)
	}
	if granted, free, _ := l.Take(7, time.Minute, 100, noon+2*second, 30); !granted || free != 0 {
		t.Errorf("30 of 100 after 70: granted %v, %d free", granted, free)
	}
	if granted, free, _ := l.Take(8, time.Minute, 100, noon+2*second, 1); !granted || free != 99 {
		t.Errorf("another key: granted %v, %d free", granted, free)
	}
	// Redis may have granted more than this instance's quota of it.
	l.Add(7, time.Minute, noon+3*second, 500)
	if granted, free, _ := l.Take(7, time.Minute, 100, noon+3*second, 1); granted || free != 0 {
		t.Errorf("1 of 100 after 600: granted %v, %d free", granted, free)
	}
}

// A cost above the quota does not fit for as long as the quota is so small. That
// can pass, as when the fleet shrinks.
func TestCostAboveTheQuota(t *testing.T) {
	l := NewLedger(100)
	for _, state := range []string{"never used", "used", "full"} {
		granted, free, retry := l.Take(7, time.Minute, 10, noon, 11)
		want := map[string]int64{"never used": 10, "used": 4, "full": 0}[state]
		if granted || free != want || retry != time.Minute {
			t.Errorf("%s: granted %v, %d free, retry after %v", state, granted, free, retry)
		}
		l.Add(7, time.Minute, noon, 6)
	}
	if granted, _, _ := l.Take(8, time.Minute, 0, noon, 1); granted {
		t.Error("a quota of zero granted a unit")
	}
}

// Counts stop at their largest value instead of starting again at zero, and one
// that has stopped leaves nothing free of any quota.
func TestCountsSaturate(t *testing.T) {
	l := NewLedger(100)
	for range 5 {
		l.Add(7, time.Minute, noon, math.MaxInt64)
		l.Add(7, time.Minute, noon, limit.MaxQuota)
		if granted, free, retry := l.Take(7, time.Minute, limit.MaxQuota, noon, 1); granted || free != 0 || retry <= 0 {
			t.Fatalf("granted %v, %d free, retry after %v", granted, free, retry)
		}
	}
	if granted, free, _ := l.Take(7, time.Minute, limit.MaxQuota, noon+2*minute, 1); !granted || free < limit.MaxQuota-2 {
		t.Errorf("after the window: granted %v, %d free", granted, free)
	}
}

// Limits on bytes pass 32 bits: 10 GB a minute are 10 GB.
func TestLargeQuotas(t *testing.T) {
	const quota, cost = 10_000_000_000, 7_000_000
	l := NewLedger(100)
	granted := int64(0)
	for i := range int64(2000) {
		// Within two sub-windows.
		if ok, free, _ := l.Take(7, time.Minute, quota, noon+i*second/200, cost); ok {
			granted += cost
			if free != quota-granted {
				t.Fatalf("%d free after %d", free, granted)
			}
		}
	}
	if granted != quota/cost*cost {
		t.Errorf("%d granted, want %d", granted, quota/cost*cost)
	}
}

// A set makes way for a new key where least is lost: first what has left its
// window, then what has the fewest units.
func TestLeastIndebtedGoesFirst(t *testing.T) {
	l := NewLedger(ledgerWays) // one set
	units := func(hash uint64) int64 {
		r := l.set(hash).find(hash)
		if r == nil {
			return -1
		}
		return r.total()
	}
	l.Add(10, time.Second, noon-second, 5000) // much, but long past
	for i := range uint64(ledgerWays - 1) {
		l.Add(11+i, time.Minute, noon, int64(20+i))
	}
	l.Add(12, time.Minute, noon, 1000)
	for i, gone := range []uint64{10, 11, 13, 14, 15, 16, 17} {
		added := uint64(100 + i)
		if units(gone) == -1 {
			t.Fatalf("key %d is gone already", gone)
		}
		l.Add(added, time.Minute, noon+second, 2000)
		if units(gone) != -1 || units(added) != 2000 {
			t.Fatalf("key %d has %d units and the new one %d; want it to have made way", gone, units(gone), units(added))
		}
	}
	if units(12) != 1021 {
		t.Errorf("a much indebted key has %d units, want 1021", units(12))
	}
}

// A million keys, each used once, do not push out the few that are used much.
func TestHeavyKeysSurviveAttackers(t *testing.T) {
	h := NewHasher()
	l := NewLedger(4096)
	const quota, heavy = 100, 200
	for i := range heavy {
		l.Add(h.Hash(string(rune('a'+i))), time.Minute, noon, quota)
	}
	attackers := rand.New(rand.NewPCG(1, 2))
	for range 1_000_000 {
		l.Take(attackers.Uint64(), time.Minute, quota, noon+second, 1)
	}
	for i := range heavy {
		if granted, free, _ := l.Take(h.Hash(string(rune('a'+i))), time.Minute, quota, noon+second, 1); granted {
			t.Fatalf("heavy key %d was forgotten: %d free", i, free)
		}
	}
}

func TestLedgerAllocatesNothing(t *testing.T) {
	l := NewLedger(1000)
	now, hash := noon, uint64(7)
	for name, call := range map[string]func(){
		"Add":           func() { l.Add(7, time.Minute, now, 1) },
		"Take":          func() { l.Take(7, time.Minute, 100, now, 1) },
		"Add, new key":  func() { l.Add(hash, time.Minute, now, 1) },
		"Take, new key": func() { l.Take(hash, time.Minute, 100, now, 1) },
	} {
		n := testing.AllocsPerRun(10_000, func() {
			now += second / 1000
			hash += 1<<24 + 1
			call()
		})
		if n != 0 {
			t.Errorf("%s: %v allocations, want none", name, n)
		}
	}
}

// Many goroutines at once get the quota of each key, not a unit more or less.
func TestLedgerConcurrently(t *testing.T) {
	const goroutines, tries, keys, quota = 8, 2000, 50, 100
	l := NewLedger(1 << 16) // room enough that no key makes way
	h := NewHasher()
	var granted [keys]atomic.Int64
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range tries {
				key := (g + i) % keys
				hash := h.Hash(string(rune('a' + key)))
				if i%100 == 99 {
					l.Add(hash^h.Salt("another rule"), time.Hour, noon, 1)
				}
				if ok, _, _ := l.Take(hash, time.Minute, quota, noon+int64(i), 1); ok {
					granted[key].Add(1)
				}
			}
		})
	}
	wg.Wait()
	for key := range granted {
		if n := granted[key].Load(); n != quota {
			t.Errorf("key %d: %d granted, want %d", key, n, quota)
		}
	}
}
