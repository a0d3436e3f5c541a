package ledger

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
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
		l := New[string](keys)
		records := len(l.sets) * ledgerWays
		if records < keys || records >= 2*keys && records > ledgerWays || bits.OnesCount(uint(len(l.sets))) != 1 {
			t.Errorf("a table for %d keys has %d records in %d sets, which must be a power of 2", keys, records, len(l.sets))
		}
	}
	if start := uintptr(unsafe.Pointer(&New[string](100).sets[0])); start%64 != 0 {
		t.Errorf("records start at %#x, which is not where a cache line does", start)
	}
}

// whole returns an account in a fleet of one, whose share is the whole limit.
func whole(l *Ledger[string], hash uint64, window time.Duration, quota int64) (*Account[string], Outage) {
	o := Outage{Number: 1, Fleet: 1}
	set := l.set(hash)
	set.mu.Lock()
	defer set.mu.Unlock()
	if i := set.find(hash); i >= 0 {
		if r := &set.records[i]; !r.frozen || r.at != o.Number {
			r.part, r.at, r.frozen = wholePart, o.Number, true
		}
	}
	return &Account[string]{Hash: hash, Window: window, Quota: quota, Key: "key"}, o
}

func add(l *Ledger[string], hash uint64, window time.Duration, now, cost int64) {
	a, _ := whole(l, hash, window, 1000)
	l.Add(a, Outage{}, now, cost)
}

func take(l *Ledger[string], hash uint64, window time.Duration, quota, now, cost int64) (granted bool, free int64, retryAfter time.Duration) {
	a, o := whole(l, hash, window, quota)
	g := l.Take(a, o, now, cost)
	return g.Granted > 0, g.Free, g.RetryAfter
}

func left(l *Ledger[string], hash uint64, window time.Duration, quota, now, cost int64) (int64, time.Duration) {
	a, o := whole(l, hash, window, quota)
	return l.Free(a, o, now, cost)
}

// The limit is 10 units per 160 s, which makes sub-windows of 10 s. A sub-window starts at noon.
func TestTake(t *testing.T) {
	const quota, window = 10, 160 * time.Second
	l := New[string](100)
	for _, test := range []struct {
		after   int64 // since noon
		cost    int64
		granted bool
		free    int64
		retry   time.Duration
	}{
		{0, 6, true, 4, 0},
		{0, 5, false, 4, 160*time.Second + 1666666667}, // one of 6 units must leave: a sixth of 10 s
		{0, 4, true, 0, 0},
		{5 * second, 1, false, 0, 156 * time.Second}, // one of 10 units must leave: a tenth of 10 s
		{160 * second, 1, false, 0, time.Second},
		{161*second - 1, 1, false, 0, 1},
		{161 * second, 1, true, 0, 0},
		{165 * second, 4, true, 0, 0},                  // half of the 10 are left, and the 1
		{170 * second, 5, true, 0, 0},                  // none of the 10 are left
		{320 * second, 10, false, 0, 20 * time.Second}, // the last five, of noon plus 170 s, must have left
		{340 * second, 10, true, 0, 0},
	} {
		granted, free, retry := take(l, 7, window, quota, noon+test.after, test.cost)
		if granted != test.granted || free != test.free || retry != test.retry {
			t.Errorf("%d units %v after noon: granted %v, %d free, retry after %v; want %v, %d, %v",
				test.cost, time.Duration(test.after), granted, free, retry, test.granted, test.free, test.retry)
		}
	}
}

// Law 11: units granted before Redis was lost count, so an outage does not start with a second quota. They count
// only for their own key.
func TestGrantsBeforeTheOutageCount(t *testing.T) {
	l := New[string](100)
	add(l, 7, time.Minute, noon, 60)
	add(l, 7, time.Minute, noon+second, 10)
	if granted, free, _ := take(l, 7, time.Minute, 100, noon+2*second, 31); granted || free != 30 {
		t.Errorf("31 of 100 after 70: granted %v, %d free", granted, free)
	}
	if granted, free, _ := take(l, 7, time.Minute, 100, noon+2*second, 30); !granted || free != 0 {
		t.Errorf("30 of 100 after 70: granted %v, %d free", granted, free)
	}
	if granted, free, _ := take(l, 8, time.Minute, 100, noon+2*second, 1); !granted || free != 99 {
		t.Errorf("another key: granted %v, %d free", granted, free)
	}
	// Redis may have granted this instance more than the instance's quota.
	add(l, 7, time.Minute, noon+3*second, 500)
	if granted, free, _ := take(l, 7, time.Minute, 100, noon+3*second, 1); granted || free != 0 {
		t.Errorf("1 of 100 after 600: granted %v, %d free", granted, free)
	}
}

// A cost above the quota does not fit for as long as the quota is so small. The quota may grow, for example when
// the fleet shrinks.
func TestCostAboveTheQuota(t *testing.T) {
	l := New[string](100)
	for _, state := range []string{"never used", "used", "full"} {
		granted, free, retry := take(l, 7, time.Minute, 10, noon, 11)
		want := map[string]int64{"never used": 10, "used": 4, "full": 0}[state]
		if granted || free != want || retry != time.Minute {
			t.Errorf("%s: granted %v, %d free, retry after %v", state, granted, free, retry)
		}
		add(l, 7, time.Minute, noon, 6)
	}
}

// Counts stop at their largest value instead of starting again at zero. A count at its largest value leaves nothing
// free of any quota.
func TestCountsSaturate(t *testing.T) {
	l := New[string](100)
	for range 5 {
		add(l, 7, time.Minute, noon, math.MaxInt64)
		add(l, 7, time.Minute, noon, limit.MaxQuota)
		if granted, free, retry := take(l, 7, time.Minute, limit.MaxQuota, noon, 1); granted || free != 0 || retry <= 0 {
			t.Fatalf("granted %v, %d free, retry after %v", granted, free, retry)
		}
	}
	if granted, free, _ := take(l, 7, time.Minute, limit.MaxQuota, noon+2*minute, 1); !granted || free < limit.MaxQuota-2 {
		t.Errorf("after the window: granted %v, %d free", granted, free)
	}
}

// Limits on bytes exceed 32 bits: 10 GB a minute are 10 GB, to within a ten-thousandth. Counts that are rounded are
// rounded up.
func TestLargeQuotas(t *testing.T) {
	const quota, cost = 10_000_000_000, 7_000_000
	const rounding = quota / 10_000
	l := New[string](100)
	granted := int64(0)
	for i := range int64(2000) {
		// These calls fall into several sub-windows.
		if ok, free, _ := take(l, 7, time.Minute, quota, noon+i*second/200, cost); ok {
			granted += cost
			if free > quota-granted || free < quota-granted-rounding {
				t.Fatalf("%d free after %d", free, granted)
			}
		}
	}
	if granted > quota || granted < quota-rounding-cost {
		t.Errorf("%d granted, want %d", granted, int64(quota/cost*cost))
	}
}

// Units are counted one by one in the newest sub-window, however coarse the counts are.
func TestCoarseCountsForgetNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, length := record{}, int64(10)
		var units []int64 // by sub-window
		for index := range rapid.Int64Range(1, 40).Draw(t, "sub-windows") {
			units = append(units, 0)
			for range rapid.IntRange(0, 4).Draw(t, "grants") {
				cost := rapid.OneOf(rapid.Int64Range(1, 3), rapid.Int64Range(1, 1<<20), rapid.Int64Range(1, limit.MaxQuota)).Draw(t, "cost")
				r.add(r.advance(length, index*length), cost)
				units[index] += cost
			}
			newest := r.advance(length, index*length)
			exact, largest := int64(0), int64(0)
			for i := max(0, newest-ledgerBuckets); i <= newest; i++ {
				exact += units[i]
			}
			for _, n := range units {
				largest = max(largest, n)
			}
			if total := r.total(); total < exact || total > exact+largest/1000 {
				t.Fatalf("%d counted of %v, %d", total, units, exact)
			}
			if n := r.count(newest) + int64(r.rest); n != units[index] {
				t.Fatalf("%d counted in the newest, want %d", n, units[index])
			}
		}
	})
}

// A set makes room for a new key by evicting the record whose loss matters least: first one whose units have left
// their window, then the one with the fewest units.
func TestLeastIndebtedGoesFirst(t *testing.T) {
	l := New[string](ledgerWays) // one set
	units := func(hash uint64) int64 {
		set := l.set(hash)
		i := set.find(hash)
		if i < 0 {
			return -1
		}
		return set.records[i].total()
	}
	add(l, 10, time.Second, noon-second, 5000) // many units, but long ago
	for i := range uint64(ledgerWays - 1) {
		add(l, 11+i, time.Minute, noon, int64(20+i))
	}
	add(l, 12, time.Minute, noon, 1000)
	for i, gone := range []uint64{10, 11, 13, 14, 15, 16, 17} {
		added := uint64(100 + i)
		if units(gone) == -1 {
			t.Fatalf("key %d is gone already", gone)
		}
		add(l, added, time.Minute, noon+second, 2000)
		if units(gone) != -1 || units(added) != 2000 {
			t.Fatalf("key %d has %d units and the new one %d; want it to have made way", gone, units(gone), units(added))
		}
	}
	if units(12) != 1021 {
		t.Errorf("a much indebted key has %d units, want 1021", units(12))
	}
}

// A million keys, each used once, do not evict the few keys that are used heavily.
func TestHeavyKeysSurviveAttackers(t *testing.T) {
	h := local.NewHasher()
	l := New[string](4096)
	const quota, heavy = 100, 200
	for i := range heavy {
		add(l, h.Hash(string(rune('a'+i))), time.Minute, noon, quota)
	}
	attackers := rand.New(rand.NewPCG(1, 2))
	for range 1_000_000 {
		take(l, attackers.Uint64(), time.Minute, quota, noon+second, 1)
	}
	for i := range heavy {
		if granted, free, _ := take(l, h.Hash(string(rune('a'+i))), time.Minute, quota, noon+second, 1); granted {
			t.Fatalf("heavy key %d was forgotten: %d free", i, free)
		}
	}
}

// The ledger records Redis's grants without allocating. It also grants and denies without allocating, for keys that
// have a line in the journal.
func TestLedgerAllocatesNothing(t *testing.T) {
	l := New[string](1000)
	now := noon
	o := Outage{Number: 1, Cut: noon, Fleet: 1}
	a := &Account[string]{Hash: 7, Window: time.Minute, Quota: 100, Key: "key"}
	other := &Account[string]{Hash: 7, Window: time.Minute, Quota: 100, Key: "other"}
	for name, call := range map[string]func(){
		"Take":             func() { l.Take(a, o, now, 1) },
		"Learn":            func() { l.Learn(a, now, Known{1, 50, 100, true}) },
		"Learn, new key":   func() { l.Learn(other, now, Known{1, 50, 100, true}) },
		"Reserve, new key": func() { l.Reserve(other, o, now, 1, 1) },
	} {
		n := testing.AllocsPerRun(10_000, func() {
			now += second / 1000
			other.Hash += 1<<24 + 1
			call()
		})
		if n != 0 {
			t.Errorf("%s: %v allocations, want none", name, n)
		}
	}
}

// Many concurrent goroutines get exactly the quota of each key.
func TestLedgerConcurrently(t *testing.T) {
	const goroutines, tries, keys, quota = 8, 2000, 50, 100
	l := New[string](1 << 16) // enough room that no record is evicted
	h := local.NewHasher()
	var granted [keys]atomic.Int64
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range tries {
				key := (g + i) % keys
				hash := h.Hash(string(rune('a' + key)))
				if i%100 == 99 {
					add(l, hash^h.Salt("another rule"), time.Hour, noon, 1)
				}
				if ok, _, _ := take(l, hash, time.Minute, quota, noon+int64(i), 1); ok {
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

// All units are gone when the last of them leave the window, also those that a coarse count has no place for.
func TestWaitForAllOfManyUnits(t *testing.T) {
	const quota, window = 1<<17 + 1, 160 * time.Second // sub-windows of 10 s
	l := New[string](8)
	take(l, 7, window, quota, noon, quota)
	for cost, want := range map[int64]time.Duration{quota: window + 10*time.Second, 1<<16 + 1: window + 5*time.Second + 38147} {
		if granted, _, retry := take(l, 7, window, quota, noon, cost); granted || retry != want {
			t.Errorf("%d units: granted %v, retry after %v, want %v", cost, granted, retry, want)
		}
	}
}
