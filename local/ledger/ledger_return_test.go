package ledger

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Free returns what Take would find, and charges nothing, neither now nor for any later call.
func TestFreeIsWhatTakeFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window, quota := drawLedgerLimit(t)
		length := subWindow(window)
		l := New[string](1)
		now, retry := noon, time.Duration(0)
		for range rapid.IntRange(1, 40).Draw(t, "calls") {
			now = max(0, now+drawLedgerPause(t, length, retry))
			cost := rapid.SampledFrom([]int64{1, quota, quota + 1, rapid.Int64Range(1, quota).Draw(t, "any cost")}).Draw(t, "cost")

			unasked := cloneLedger(l)
			free, wait := left(l, 7, window, quota, now, cost)
			granted, rest, takeWait := take(cloneLedger(l), 7, window, quota, now, cost)
			want := rest
			if granted {
				want += cost
			}
			if granted != (cost <= free) || free != want || wait != takeWait {
				t.Fatalf("%d per %v, cost %d: %d free, wait %v; take finds %d, granted %v, wait %v", quota, window, cost, free, wait, want, granted, takeWait)
			}
			sameTake(t, unasked, l, window, quota, now, cost)
			sameTake(t, unasked, l, window, quota, now+length, cost)
			_, _, retry = take(l, 7, window, quota, now, cost)
		}
	})
}

// sameTake checks that two ledgers give the same answer.
func sameTake(t *rapid.T, a, b *Ledger[string], window time.Duration, quota, now, cost int64) {
	grantedA, freeA, waitA := take(cloneLedger(a), 7, window, quota, now, cost)
	grantedB, freeB, waitB := take(cloneLedger(b), 7, window, quota, now, cost)
	if grantedA != grantedB || freeA != freeB || waitA != waitB {
		t.Fatalf("%d per %v, cost %d: %v, %d free, wait %v became %v, %d free, wait %v", quota, window, cost, grantedA, freeA, waitA, grantedB, freeB, waitB)
	}
}

// Laws 1 and 11: returned units free no more units, then or later, than if they had never been granted.
func TestReturnFreesNoMoreThanWasGranted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window, quota := drawLedgerLimit(t)
		length := subWindow(window)
		l, lean := New[string](1), history{length: length}
		now, retry := noon, time.Duration(0)
		for range rapid.IntRange(1, 40).Draw(t, "calls") {
			now = max(0, now+drawLedgerPause(t, length, retry))
			lean.latest = max(lean.latest, now)
			if i := drawReturnable(t, &lean, window); i >= 0 {
				units := rapid.Int64Range(1, lean.costs[i]).Draw(t, "units")
				l.Return(&Account[string]{Hash: 7, Window: window}, now, Oldest, units, true)
				lean.costs[i] -= units
			} else {
				cost := rapid.Int64Range(1, quota).Draw(t, "cost")
				var granted bool
				if granted, _, retry = take(l, 7, window, quota, now, cost); granted {
					lean.add(now, cost)
				}
			}
			for _, later := range []int64{0, 1, length, length / 2, int64(window) - 1, int64(window)} {
				free, _ := left(cloneLedger(l), 7, window, quota, now+later, 1)
				asked := lean
				if want := max(0, quota-asked.used(now+later)); free > want {
					t.Fatalf("%d per %v: %d free after a return, %d had the units not been granted", quota, window, free, want)
				}
			}
		}
	})
}

// A grant that is undone at once has had no effect: every later answer is as before.
func TestUndoLeavesNoTrace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window, quota := drawLedgerLimit(t)
		length := subWindow(window)
		l := New[string](1)
		now, retry := noon, time.Duration(0)
		for range rapid.IntRange(1, 40).Draw(t, "calls") {
			now = max(0, now+drawLedgerPause(t, length, retry))
			cost := rapid.Int64Range(1, quota).Draw(t, "cost")
			before := cloneLedger(l)
			var granted bool
			if granted, _, retry = take(l, 7, window, quota, now, cost); !granted || rapid.Bool().Draw(t, "keep") {
				continue
			}
			l.Undo(&Account[string]{Hash: 7, Window: window}, now, cost, true)
			for _, later := range []int64{0, length / 2, length, int64(window), int64(window) + length} {
				sameTake(t, before, l, window, quota, now+later, cost)
			}
		}
	})
}

// drawReturnable draws a grant that is in the window and not fully returned, or -1 to return nothing.
func drawReturnable(t *rapid.T, h *history, window time.Duration) int {
	var choices []int
	for i, stamp := range h.stamps {
		if h.costs[i] > 0 && stamp > h.latest-int64(window) {
			choices = append(choices, i)
		}
	}
	if len(choices) == 0 || rapid.Bool().Draw(t, "grant") {
		return -1
	}
	return rapid.SampledFrom(choices).Draw(t, "return")
}

// The oldest units are returned first, from as many sub-windows as necessary. Never more units are returned than
// there are.
func TestReturnTakesTheOldestFirst(t *testing.T) {
	const quota, window = 10, 160 * time.Second // sub-windows of 10 s
	start := func() *Ledger[string] {
		l := New[string](1)
		for i, cost := range []int64{2, 3, 4} {
			add(l, 7, window, noon+int64(i)*10*second, cost)
		}
		return l
	}
	const now = noon + 25*second
	// The fields are the units free at first, and when each of the three sub-windows has left the window.
	for _, test := range []struct{ units, free, first, second, third int64 }{
		{0, 1, 3, 6, 10},
		{1, 2, 3, 6, 10},
		{2, 3, 3, 6, 10},
		{4, 5, 5, 6, 10},
		{9, 10, 10, 10, 10},
		{10, 10, 10, 10, 10},
		{1 << 60, 10, 10, 10, 10},
	} {
		l := start()
		l.Return(&Account[string]{Hash: 7, Window: window}, now, Oldest, test.units, true)
		for _, at := range []struct{ now, want int64 }{
			{now, test.free},
			{noon + 170*second, test.first},
			{noon + 180*second, test.second},
			{noon + 190*second, test.third},
		} {
			if free, _ := left(l, 7, window, quota, at.now, 1); free != at.want {
				t.Errorf("%d returned, at %v: %d free, want %d", test.units, time.Duration(at.now-noon), free, at.want)
			}
		}
	}
	l := New[string](1)
	l.Return(&Account[string]{Hash: 8, Window: window}, now, Oldest, 5, true) // the key was never used
	if free, _ := left(l, 8, window, quota, now, 1); free != quota {
		t.Errorf("%d of %d free after a return to an unused key", free, quota)
	}
}

// TakeUpTo grants in one step exactly the units that Free reports, up to the cost.
func TestTakeUpToGrantsWhatIsFree(t *testing.T) {
	l := New[string](8)
	for _, step := range []struct{ cost, granted, free int64 }{{4, 4, 6}, {100, 6, 0}, {1, 0, 0}} {
		a, o := whole(l, 7, time.Minute, 10)
		g := l.TakeUpTo(a, o, noon, step.cost)
		if g.Granted != step.granted || g.Free != step.free || (g.RetryAfter > 0) != (g.Granted == 0) {
			t.Errorf("up to %d: %+v", step.cost, g)
		}
	}
}

// Units that are taken back from the time at which they were granted leave no trace: every later answer is as if they
// had never been granted.
func TestReturnLeavesNoTrace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 100 // so that no count is rounded
		window, quota := drawLedgerLimit(t)
		l, lean := New[string](1), New[string](1)
		a := &Account[string]{Hash: 7, Window: window, Quota: quota}
		type grant struct{ at, cost int64 }
		var returned []grant
		now := rapid.SampledFrom([]int64{0, noon}).Draw(t, "start")
		for range rapid.IntRange(1, 40).Draw(t, "calls") {
			now += rapid.Int64Range(0, int64(window)/80).Draw(t, "pause") // nothing leaves the window
			if len(returned) > 0 && rapid.Bool().Draw(t, "return") {
				i := rapid.IntRange(0, len(returned)-1).Draw(t, "which")
				l.Return(a, now, returned[i].at, returned[i].cost, true)
				returned = slices.Delete(returned, i, i+1)
				continue
			}
			g := grant{now, rapid.Int64Range(1, most).Draw(t, "cost")}
			l.Add(a, Outage{}, g.at, g.cost)
			if rapid.Bool().Draw(t, "keep") {
				lean.Add(a, Outage{}, g.at, g.cost)
			} else {
				returned = append(returned, g)
			}
		}
		for _, g := range returned {
			l.Return(a, now, g.at, g.cost, true)
		}
		if units, want := waiting(l), waiting(lean); units != want {
			t.Fatalf("%d units wait for Redis, want %d", units, want)
		}
		for later := int64(0); later <= int64(window)*9/8; later += int64(window) / 24 {
			if used, want := l.Used(a, now+later), lean.Used(a, now+later); used != want {
				t.Fatalf("%v later %d units are on record, want %d", time.Duration(later), used, want)
			}
		}
	})
}

func waiting(l *Ledger[string]) int64 {
	units, _ := l.Waiting()
	return units
}

// Undo removes the newest units, also if the next sub-window has begun since they were reserved. If it removed the
// oldest, what is left would stay on record for longer.
func TestUndoInTheNextSubWindow(t *testing.T) {
	const window = 160 * time.Second // sub-windows of 10 s
	l := New[string](8)
	take(l, 7, window, 100, noon, 5)
	a, o := whole(l, 7, window, 100)
	l.Reserve(a, o, noon+19*second, 3, 3)
	l.Undo(a, noon+21*second, 3, false)
	if used := l.Used(a, noon+21*second); used != 5 {
		t.Errorf("%d units on record, want 5", used)
	}
	if used := l.Used(a, noon+170*second); used != 0 {
		t.Errorf("%d units on record after the window of all that are left", used)
	}
}
