package local

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const leaseLife = time.Second

func lease(id uint64, now, units int64) Lease[string] {
	return Lease[string]{ID: id, Key: "k", Units: units, Stamp: 7, Ends: now + int64(leaseLife), Free: 100, Reset: now + 2*second}
}

// hold makes l hold a lease of a key, as if the lease had been wanted and granted.
func hold(t testing.TB, l *Leases[string], hash uint64, now, units int64) {
	t.Helper()
	for l.Wanted(hash, now, units, leaseLife, 1000) == 0 {
	}
	l.Hold(hash, now, lease(l.NextID(), now, units))
}

// Under GCRA a key may be as if it had never been used before its lease ends.
func TestALeaseOutlivesWhatItsKeyUsed(t *testing.T) {
	l := NewLeases[string](100)
	hold(t, l, 7, noon, 1)
	l.End(7)
	soon := lease(l.NextID(), noon, 10)
	soon.Reset = noon + second/4
	l.Hold(7, noon, soon)
	if s, ok := l.Spend(7, noon+second/2, 1, 1); !ok || s.ResetAfter != 0 {
		t.Errorf("%v, %+v, want a reset now", ok, s)
	}
}

// Redis tells leases apart by their IDs, also those of different processes.
func TestLeasesOfTwoProcessesHaveDifferentIDs(t *testing.T) {
	if one, other := NewLeases[string](1).NextID(), NewLeases[string](1).NextID(); one == other {
		t.Errorf("both have the ID %d", one)
	}
}

func TestALeaseIsSpentUntilItEnds(t *testing.T) {
	l, hash := NewLeases[string](100), testHasher.Hash("k")
	if _, ok := l.Spend(hash, noon, 1, 1); ok {
		t.Fatal("spent without a lease")
	}
	hold(t, l, hash, noon, 10)
	s, ok := l.Spend(hash, noon+second/2, 4, 4)
	if want := (Spent{Stamp: 7, Remaining: 106, ResetAfter: 1500 * time.Millisecond}); !ok || s != want {
		t.Errorf("%v, %+v, want %+v", ok, s, want)
	}
	if s, ok := l.Spend(hash, noon, 6, 0); !ok || s.Remaining != 106 {
		t.Errorf("a peek: %v, %+v", ok, s)
	}
	if _, ok := l.Spend(hash, noon, 7, 7); ok {
		t.Error("spent 7 of 6")
	}
	if _, ok := l.Spend(testHasher.Hash("other"), noon, 1, 1); ok {
		t.Error("spent another key's")
	}
	if _, ok := l.Spend(hash, noon+second, 1, 1); ok {
		t.Error("spent after its end")
	}
	if got := l.Left(noon); got != 6 {
		t.Errorf("%d left", got)
	}
	if got := l.Left(noon + second); got != 0 {
		t.Errorf("%d left after its end", got)
	}
	if e, ok := l.End(hash); !ok || e.Left != 6 || e.Units != 10 || l.Held() != 0 {
		t.Errorf("%v, %+v", ok, e)
	}
	if _, ok := l.Spend(hash, noon, 1, 1); ok {
		t.Error("spent after it was ended")
	}
}

// A request that finds a key's record just before the record becomes another key's spends nothing of the other
// key's lease.
func TestALeaseIsNotSpentForAnotherKey(t *testing.T) {
	l, hash := NewLeases[string](1), testHasher.Hash("k")
	hold(t, l, hash, noon, 10)
	set := l.set(hash)
	for i := range set.records {
		if _, ok := set.records[i].lease.Load().spend(hash+1, noon, 1, 1); ok {
			t.Error("spent")
		}
	}
	if l.Left(noon) != 10 {
		t.Errorf("%d left", l.Left(noon))
	}
}

// A request that has found a lease spends nothing of it once the lease was ended, even if the key has another one.
func TestALeaseIsNotSpentAfterItWasEnded(t *testing.T) {
	l, hash := NewLeases[string](1), testHasher.Hash("k")
	hold(t, l, hash, noon, 10)
	found := l.set(hash).find(hash).lease.Load()
	l.End(hash)
	hold(t, l, hash, noon, 10)
	if _, ok := found.spend(hash, noon, 1, 1); ok || l.Left(noon) != 10 {
		t.Errorf("spent: %v, %d left", ok, l.Left(noon))
	}
}

// However many goroutines spend, end and renew leases at once, every unit is spent once or left.
func TestUnitsOfALeaseAreSpentOnceOrLeft(t *testing.T) {
	l := NewLeases[string](leaseWays)     // one set
	hashes := make([]uint64, leaseWays+4) // more keys than places
	for i := range hashes {
		hashes[i] = testHasher.Hash(fmt.Sprint(i))
	}
	var spent, leased, left atomic.Int64
	var stop atomic.Bool
	var spenders, renewers sync.WaitGroup
	for range 4 {
		spenders.Go(func() {
			for i := 0; !stop.Load(); i++ {
				hash := hashes[i%len(hashes)]
				if s, ok := l.Spend(hash, noon, 3, 3); ok {
					spent.Add(3)
					if s.Stamp != int64(hash>>1) {
						t.Errorf("spent a lease charged at %d for key %d", s.Stamp, hash>>1)
						return
					}
				}
			}
		})
	}
	for k := range 2 {
		renewers.Go(func() {
			// Longer if the spenders have not had a processor yet.
			for i := 0; i < 20_000 || spent.Load() == 0 && i < 20_000_000; i++ {
				hash := hashes[(i*(k+1))%len(hashes)]
				if i%5 == 0 {
					if e, ok := l.End(hash); ok {
						left.Add(e.Left)
					}
				}
				if l.Wanted(hash, noon, 100, leaseLife, 1000) == 0 {
					continue
				}
				if e, ok := l.End(hash); ok {
					left.Add(e.Left)
				}
				leased.Add(50)
				given := lease(l.NextID(), noon, 50)
				given.Stamp = int64(hash >> 1)
				l.Hold(hash, noon, given)
			}
		})
	}
	renewers.Wait()
	stop.Store(true)
	spenders.Wait()
	for _, e := range l.EndAll() {
		left.Add(e.Left)
	}
	if spent.Load() == 0 || spent.Load()+left.Load() != leased.Load() {
		t.Errorf("%d spent and %d left of %d leased", spent.Load(), left.Load(), leased.Load())
	}
	if l.Held() != 0 || l.Left(noon) != 0 {
		t.Errorf("%d held, %d left after all were ended", l.Held(), l.Left(noon))
	}
}

// A lease is sized so that the recent demand spends it in half of its life. A key that is seldom used is not leased
// at all, and only one caller is told to ask for a lease.
func TestLeasesFollowDemand(t *testing.T) {
	l, hash, now := NewLeases[string](1), testHasher.Hash("k"), noon
	for range 100 {
		now += second / 4 // four a second: in half a life, too few to be worth a lease
		if want := l.Wanted(hash, now, 1, leaseLife, 1000); want != 0 {
			t.Fatalf("wanted %d at 4 a second", want)
		}
	}
	now += 10 * second
	want := int64(0)
	for range 50 {
		if want = l.Wanted(hash, now, 1, leaseLife, 1000); want > 0 {
			break
		}
		now += second / 100
	}
	if want != 16 { // four in 1/8 of a life make 16 in half of it
		t.Fatalf("wanted %d after a few at 100 a second", want)
	}
	if again := l.Wanted(hash, now, 1, leaseLife, 1000); again != 0 {
		t.Errorf("another caller is told to ask for %d", again)
	}
	for i := range 6 { // 100 a second
		l.End(hash)
		l.Hold(hash, now, lease(1, now, want))
		for range want {
			now += second / 100
			if _, ok := l.Spend(hash, now, 1, 1); !ok {
				t.Fatal("not spent")
			}
		}
		now += second / 100
		if want = l.Wanted(hash, now, 1, leaseLife, 1000); i > 0 && want != 50 {
			t.Fatalf("wanted %d at 100 a second", want)
		}
	}
	// Many callers that were on their way to Redis when a lease arrived do not show that the lease is spent.
	l.End(hash)
	l.Hold(hash, now, lease(1, now, 50))
	for range 100 {
		if again := l.Wanted(hash, now, 1, leaseLife, 1000); again != 0 {
			t.Fatalf("wanted %d although the lease is not spent", again)
		}
	}
	l.Spend(hash, now, 50, 50)
	if want := l.Wanted(hash, now, 1, leaseLife, 1000); want == 0 {
		t.Error("no lease wanted after it was spent")
	}
	l.Refused(hash, now+second)
	for range 20 {
		if want := l.Wanted(hash, now+second-1, 1, leaseLife, 1000); want != 0 {
			t.Fatalf("wanted %d although it was refused", want)
		}
	}
	if want := l.Wanted(testHasher.Hash("large"), now, 500, leaseLife, 1000); want != 0 {
		t.Errorf("wanted %d after one large request", want)
	}
	for range 10 {
		if want := l.Wanted(testHasher.Hash("much"), now, 50, leaseLife, 60); want != 0 {
			t.Errorf("wanted %d for one request's units", want)
		}
	}
}

func TestUnusedLeasesEnd(t *testing.T) {
	l := NewLeases[string](100)
	used, idle, spent := testHasher.Hash("used"), testHasher.Hash("idle"), testHasher.Hash("spent")
	for _, hash := range []uint64{used, idle, spent} {
		hold(t, l, hash, noon, 10)
	}
	l.Spend(spent, noon, 10, 10)
	quarter := int64(leaseLife) / idleFor
	if ended := l.EndIdle(noon + quarter - 1); len(ended) != 0 {
		t.Errorf("ended early: %+v", ended)
	}
	l.Spend(used, noon+quarter-1, 1, 1)
	if ended := l.EndIdle(noon + quarter); len(ended) != 1 || ended[0].Left != 10 {
		t.Errorf("want the idle one: %+v", ended)
	}
	for now := noon + quarter; now < noon+int64(leaseLife); now += quarter / 2 {
		l.Spend(used, now, 1, 1)
		if ended := l.EndIdle(now); len(ended) != 0 {
			t.Errorf("a used one ended: %+v", ended)
		}
	}
	if ended := l.EndIdle(noon + int64(leaseLife)); len(ended) != 1 || ended[0].Left != 3 {
		t.Errorf("want the used one at its end: %+v", ended)
	}
	if l.Held() != 0 {
		t.Errorf("%d are held", l.Held())
	}
}

// A set that is full of leases has no place for another key, and each lease can be spent.
func TestLeasesAreNotEvicted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := NewLeases[string](leaseWays)
		held, leased := int64(0), []uint64(nil)
		for hash := uint64(1); hash <= 40; hash++ {
			for range 10 {
				if l.Wanted(hash, noon, 1, leaseLife, 100) > 0 {
					if !rapid.Bool().Draw(t, "granted") {
						l.Refused(hash, noon)
					} else {
						l.Hold(hash, noon, lease(hash, noon, 5))
						held, leased = held+5, append(leased, hash)
					}
				}
			}
		}
		if l.Left(noon) != held || held > 5*leaseWays {
			t.Fatalf("%d units held, %d left", held, l.Left(noon))
		}
		for _, hash := range leased {
			if _, ok := l.Spend(hash, noon, 5, 5); !ok {
				t.Fatalf("the lease of key %d of %v cannot be spent", hash, leased)
			}
		}
	})
}

func benchSpend(b testing.TB) func() {
	l, hash := NewLeases[string](1000), testHasher.Hash("user:12345678")
	hold(b, l, hash, noon, 10)
	return func() {
		if _, ok := l.Spend(hash, noon, 1, 1); !ok {
			l.End(hash)
			l.Wanted(hash, noon+2*second, 10, leaseLife, 1000)
			l.Hold(hash, noon, Lease[string]{ID: 1, Units: 1 << 31, Ends: noon + second})
		}
	}
}

func TestSpendingAllocatesNothing(t *testing.T) {
	spend := benchSpend(t)
	for range 20 {
		spend()
	}
	if n := testing.AllocsPerRun(1000, spend); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func BenchmarkSpend(b *testing.B) {
	spend := benchSpend(b)
	b.Run("one caller", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			spend()
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				spend()
			}
		})
	})
}

// The units spent of an earlier lease, or left of a lease that is over, say nothing about the present demand.
func TestAnOldLeaseIsNoSignOfDemand(t *testing.T) {
	l, hash := NewLeases[string](1), testHasher.Hash("k")
	hold(t, l, hash, noon, 100)
	l.Spend(hash, noon, 100, 100)
	if want := l.Wanted(hash, noon+int64(leaseLife)+1, 1, leaseLife, 1000); want != 0 {
		t.Errorf("wanted %d for one request in a life", want)
	}
	l, want := NewLeases[string](1), int64(0)
	hold(t, l, hash, noon, 100)
	for range 100 {
		want = max(want, l.Wanted(hash, noon+int64(leaseLife), 1, leaseLife, 1000))
	}
	if want == 0 {
		t.Error("no lease is wanted after the end of one that has units left")
	}
}

// The demand for a key says nothing about the key that takes its place.
func TestDemandIsOfOneKey(t *testing.T) {
	l := NewLeases[string](leaseWays)
	for hash := range uint64(leaseWays) {
		l.Wanted(1+hash, noon, 100, leaseLife, 1000)
	}
	if want := l.Wanted(1+leaseWays, noon, 1, leaseLife, 1000); want != 0 {
		t.Errorf("%d units are wanted for a key that has been asked for once", want)
	}
}

// A set that is full of keys whose leases are requested has no place for another key.
func TestRequestsForLeasesAreNotEvicted(t *testing.T) {
	l := NewLeases[string](leaseWays)
	ask := func(hash uint64) (want int64) {
		for range leaseWorth {
			want = l.Wanted(hash, noon, 1, leaseLife, 1000)
		}
		return want
	}
	for hash := range uint64(leaseWays) {
		if ask(1+hash) == 0 {
			t.Fatal("no lease is wanted")
		}
	}
	if want := ask(1 + leaseWays); want != 0 {
		t.Errorf("%d units are wanted for one key more", want)
	}
	for hash := range uint64(leaseWays) {
		l.Hold(1+hash, noon, lease(1+hash, noon, 5))
	}
	if left := l.Left(noon); left != 5*leaseWays {
		t.Errorf("%d units left, want %d", left, 5*leaseWays)
	}
}
