package ledger

import (
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/limit"
)

// history is a complete record: every unit, with its time. A caller whose time is earlier than that of a caller
// served before it counts at the later time.
type history struct {
	length        int64 // of a sub-window
	latest        int64
	stamps, costs []int64
}

func (h *history) add(now, cost int64) {
	h.latest = max(h.latest, now)
	h.stamps = append(h.stamps, h.latest)
	h.costs = append(h.costs, cost)
}

// used returns the units in the sub-windows that lie in the window, plus a part of the oldest sub-window's units:
// the fraction of its length that overlaps the window. The sum is rounded up.
func (h *history) used(now int64) int64 {
	h.latest = max(h.latest, now)
	current := h.latest / h.length
	into := max(0, now-current*h.length)
	sum := new(big.Rat)
	for i, stamp := range h.stamps {
		part := new(big.Rat)
		switch index := stamp / h.length; {
		case index > current-ledgerBuckets:
			part.SetInt64(1)
		case index == current-ledgerBuckets:
			part.SetFrac64(h.length-into, h.length)
		}
		sum.Add(sum, part.Mul(part, new(big.Rat).SetInt64(h.costs[i])))
	}
	up := new(big.Int).Neg(sum.Num())
	return -up.Div(up, sum.Denom()).Int64()
}

// youngerThan returns the units granted less than age ago.
func (h *history) youngerThan(age int64) int64 {
	sum := int64(0)
	for i, stamp := range h.stamps {
		if stamp > h.latest-age {
			sum += h.costs[i]
		}
	}
	return sum
}

// drawLedgerLimit draws any valid window, and a quota that some histories fill.
func drawLedgerLimit(t *rapid.T) (window time.Duration, quota int64) {
	window = time.Microsecond * time.Duration(rapid.OneOf(
		rapid.Int64Range(limit.MinWindow.Microseconds(), 1010),
		rapid.SampledFrom([]int64{1_000_000, 60_000_000, 86_400_000_000}),
		rapid.Int64Range(limit.MinWindow.Microseconds(), limit.MaxWindow.Microseconds()),
		rapid.Int64Range(limit.MaxWindow.Microseconds()-3, limit.MaxWindow.Microseconds()),
	).Draw(t, "window"))
	quota = rapid.OneOf(
		rapid.Int64Range(1, 20),
		rapid.Int64Range(1, 1000), // in total below the size at which counts are rounded
	).Draw(t, "quota")
	return window, quota
}

// drawLedgerPause draws the time until the next call: mostly until about the end of a sub-window or a window. The
// time is sometimes slightly negative, as if a caller that read the clock earlier arrived later.
func drawLedgerPause(t *rapid.T, length int64, retry time.Duration) int64 {
	return rapid.SampledFrom([]int64{
		0, 0, 1, -1,
		length,
		length - 1,
		ledgerBuckets * length,
		ledgerBuckets*length - 1,
		int64(retry),
		rapid.Int64Range(0, length).Draw(t, "within"),
		rapid.Int64Range(0, 10*length).Draw(t, "past"),
		-rapid.Int64Range(0, min(length, int64(time.Millisecond))).Draw(t, "back"),
	}).Draw(t, "pause")
}

// Over random histories, every answer is that of a plain sliding counter, computed from all units in exact
// fractions.
//
// An answer from a credit is an exception. It is the answer at the time when the credit was issued, less the units
// granted since.
//
// Laws 1 and 11: therefore a unit counts for at least a window less one sub-window, and no window holds more than
// 2*quota-1 units.
func TestLedgerIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window, quota := drawLedgerLimit(t)
		h := &history{length: subWindow(window)}
		l := New[string](1)
		const hash = 7
		now := rapid.SampledFrom([]int64{0, 1, noon, 1_790_123_456_789_012_345}).Draw(t, "start")
		retry := time.Duration(0)
		granted := history{}
		for range rapid.IntRange(1, 60).Draw(t, "calls") {
			now = max(0, now+drawLedgerPause(t, h.length, retry))
			used := h.used(now)
			room := max(0, quota-used)
			cost := rapid.SampledFrom([]int64{
				1, room, room + 1, quota, rapid.Int64Range(1, quota).Draw(t, "any cost"),
			}).Draw(t, "cost")
			cost = min(max(1, cost), quota)
			if rapid.IntRange(0, 5).Draw(t, "granted by Redis") == 0 {
				add(l, hash, window, now, cost)
				h.add(now, cost)
				continue
			}
			exact := rapid.Bool().Draw(t, "ends credits")
			most := room
			if exact {
				l.settleCredits()
			} else { // from a credit of a caller whose time is later
				most = max(room, quota-h.used(h.latest))
			}
			ok, free, wait := take(l, hash, window, quota, now, cost)
			retry = wait
			if ok && cost > most || !ok && cost <= room {
				t.Fatalf("%d per %v: %d of %d to %d free: granted %v", quota, window, cost, room, most, ok)
			}
			if !ok {
				if free != room {
					t.Fatalf("%d per %v: %d free, want %d", quota, window, free, room)
				}
				checkRetry(t, l, window, quota, now, cost, wait)
				continue
			}
			if free != room-cost && exact || free > most-cost || wait != 0 {
				t.Fatalf("%d per %v: granted %d of %d, then %d free, retry after %v", quota, window, cost, room, free, wait)
			}
			// This check does not use the definition of used: no unit is forgotten early.
			if recent := h.youngerThan((ledgerBuckets - 1) * h.length); recent+cost > quota {
				t.Fatalf("%d per %v: granted %d after %d", quota, window, cost, recent)
			}
			h.add(now, cost)
			granted.add(h.latest, cost)
		}
		if n := model.MaxInWindow(granted.stamps, granted.costs, int64(window)); n > 2*quota-1 {
			t.Fatalf("%d per %v: %d in a window", quota, window, n)
		}
	})
}

// checkRetry checks that a wait is exact: if nothing else happens, the cost is granted at the end of the wait, and
// not a nanosecond earlier.
func checkRetry(t *rapid.T, l *Ledger[string], window time.Duration, quota, now, cost int64, wait time.Duration) {
	if wait < 1 {
		t.Fatalf("%d per %v: denied, retry after %v", quota, window, wait)
	}
	if ok, _, _ := take(cloneLedger(l), 7, window, quota, now+int64(wait)-1, cost); ok {
		t.Fatalf("%d per %v: told to wait %v for %d, granted before", quota, window, wait, cost)
	}
	if ok, free, more := take(cloneLedger(l), 7, window, quota, now+int64(wait), cost); !ok {
		t.Fatalf("%d per %v: after waiting %v for %d, %d free and told to wait %v more", quota, window, wait, cost, free, more)
	}
}

func cloneLedger(l *Ledger[string]) *Ledger[string] {
	c := New[string](len(l.sets) * ledgerWays)
	for i := range l.sets {
		l.lockSet(&l.sets[i])
		l.sets[i].mu.Unlock()
		c.sets[i].records, c.sets[i].tags = l.sets[i].records, l.sets[i].tags
	}
	return c
}

// The bound of 2*quota-1 is reached by a caller that knows the sub-windows. It takes a full quota at the end of a
// sub-window, and all but one unit of another quota just before a window has passed.
func TestLedgerWorstCaseIsReached(t *testing.T) {
	const quota, window = 100, 160 * time.Second // sub-windows of 10 s
	l := New[string](1)
	h := history{}
	for _, request := range []struct{ after, cost int64 }{{10*second - 1, quota}, {170*second - 2, quota - 1}} {
		if ok, free, _ := take(l, 7, window, quota, noon+request.after, request.cost); !ok {
			t.Fatalf("%d of %d free denied", request.cost, free)
		}
		h.add(request.after, request.cost)
	}
	if most := model.MaxInWindow(h.stamps, h.costs, int64(window)); most != 2*quota-1 {
		t.Errorf("%d units in a window, want %d", most, 2*quota-1)
	}
}

// Law 11: under steady load above the quota, any window holds about the quota. The ledger grants neither much less
// nor much more.
func TestLedgerUnderSteadyLoad(t *testing.T) {
	const quota, window = 1000, 10 * time.Second
	l := New[string](1)
	h := history{}
	for i := range int64(3 * quota * 20) { // three times the quota, for 20 windows
		now := noon + i*int64(window)/(3*quota)
		if ok, _, _ := take(l, 7, window, quota, now, 1); ok {
			h.add(now, 1)
		}
	}
	most := model.MaxInWindow(h.stamps, h.costs, int64(window))
	least := int64(quota)
	for from := noon; from <= noon+19*int64(window); from += second / 10 {
		begin, _ := slices.BinarySearch(h.stamps, from)
		end, _ := slices.BinarySearch(h.stamps, from+int64(window))
		least = min(least, int64(end-begin))
	}
	if least < quota*9/10 || most > quota*105/100 {
		t.Errorf("windows hold %d to %d units, want 90 %% to 105 %% of %d", least, most, quota)
	}
	t.Logf("windows hold %d to %d units of %d", least, most, quota)
}
