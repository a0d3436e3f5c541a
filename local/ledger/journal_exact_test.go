package ledger

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// grants are a key's units, by the number of their sub-window.
type grants map[int64]int64

// take removes up to the given units from those that a record with this newest sub-window still has.
func (g grants) take(newest, units int64, newestFirst bool) {
	order := slices.Sorted(maps.Keys(g))
	if newestFirst {
		slices.Reverse(order)
	}
	for _, index := range order {
		if index > newest-ledgerCounts {
			n := min(g[index], units)
			g[index] -= n
			units -= n
		}
	}
}

// parts returns the units that are less than a window old. The time of a sub-window's units is the middle of the
// part of the sub-window that has passed since the first of all units.
func (g grants) parts(window time.Duration, first, now int64) (parts []Part) {
	length := subWindow(window)
	for _, index := range slices.Sorted(maps.Keys(g)) {
		end := min((index+1)*length, max(index*length, now))
		start := min(max(index*length, first), end)
		at := start + (end-start)/2
		if g[index] > 0 && now-at < int64(window) {
			parts = append(parts, Part{Units: g[index], At: at})
		}
	}
	return parts
}

// Laws 3 and 11: the units to be charged are, to the unit and with their age, those that were granted without Redis
// and neither taken back nor charged since, also if Redis refused to charge them before. Units that Redis has lost
// are added. The test uses random histories.
func TestLaws3And11JournalIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window, _ := drawLedgerLimit(t)
		length := subWindow(window)
		l := New[string](1)
		a := Account[string]{Hash: 7, Window: window, Quota: 1 << 40, Key: "key"}
		maybe := a // Redis may have charged these units
		maybe.Charged = true
		all, owed := grants{}, grants{} // the units on record, and those of them that Redis lacks
		lost := int64(math.MaxInt64)    // the time since which Redis has lost data, until the next use of the key
		first := int64(0)               // when the first units that Redis lacks were granted, or may have been
		var sent struct {               // units that were taken out to be charged and will be refused
			debts []Debt[string]
			units grants
			first int64
		}
		newest := int64(-1 << 40)
		now := noon
		owes := func() bool {
			for index, units := range owed {
				if index > newest-ledgerCounts && units > 0 {
					return true
				}
			}
			return false
		}
		used := func() { // called when the key is used
			if lost != math.MaxInt64 {
				first = 0
			}
			for index, units := range all {
				if index > newest-ledgerCounts && index >= max(0, lost/length) && lost != math.MaxInt64 {
					owed[index] = units
				}
			}
			lost = math.MaxInt64
		}
		advance := func() { newest = max(newest, now/length) }
		grant := func(cost int64, uncharged bool) {
			all[newest] += cost
			if uncharged {
				if !owes() {
					first = now
				}
				owed[newest] += cost
			}
		}
		for range rapid.IntRange(1, 40).Draw(t, "calls") {
			now += max(0, drawLedgerPause(t, length, window))
			cost := rapid.Int64Range(1, 20).Draw(t, "cost")
			what := rapid.SampledFrom([]string{"take", "take", "maybe", "add", "learn", "reserve", "return", "undo", "forget", "charge", "charge", "send", "refuse"}).Draw(t, "what")
			switch what {
			case "take":
				used()
				advance()
				if g := l.Take(&a, Outage{Number: 1, Cut: noon, Fleet: 1}, now, cost); g.Granted != cost {
					t.Fatalf("%+v", g)
				}
				grant(cost, true)
			case "maybe":
				used()
				advance()
				l.Take(&maybe, Outage{Number: 1, Cut: noon, Fleet: 1}, now, cost)
				grant(cost, false)
			case "add":
				used()
				advance()
				l.Add(&a, Outage{}, now, cost)
				grant(cost, true)
			case "learn":
				used()
				advance()
				l.Learn(&a, now, Known{Granted: cost})
				grant(cost, false)
			case "reserve": // and Redis grants it
				used()
				advance()
				l.Reserve(&a, Outage{Number: 1, Cut: noon, Fleet: 1}, now, cost, cost)
				l.Learn(&a, now, Known{Granted: cost})
				l.Undo(&a, now, cost, false)
				grant(cost, false)
			case "return", "undo":
				if len(all) == 0 {
					continue
				}
				advance()
				uncharged := rapid.Bool().Draw(t, "uncharged")
				if what == "undo" {
					l.Undo(&a, now, cost, uncharged)
				} else {
					l.Return(&a, now, Oldest, cost, uncharged)
				}
				all.take(newest, cost, what == "undo")
				if uncharged {
					owed.take(newest, cost, what == "undo")
				}
			case "forget":
				if lost != math.MaxInt64 {
					continue // at most once for each use: see Shard.dataLost
				}
				since := rapid.SampledFrom([]int64{math.MinInt64, noon, now, now - int64(window)/2}).Draw(t, "since")
				l.Forgotten(func(int) bool { return true }, since)
				if len(all) > 0 { // otherwise there is no record yet whose units could be lost
					lost = since
				}
				for index := range sent.units {
					if index >= max(0, since/length) {
						delete(sent.units, index) // these units are among the lost ones
					}
				}
			case "refuse":
				for _, d := range sent.debts {
					l.PutBack(d)
				}
				maps.DeleteFunc(sent.units, func(index, _ int64) bool { return index <= newest-ledgerCounts })
				if len(sent.units) > 0 && !owes() {
					first = sent.first
				}
				for index, units := range sent.units {
					owed[index] += units
					first = min(first, sent.first)
				}
				sent.debts, sent.units = nil, nil
			case "charge", "send":
				if what == "send" && len(sent.debts) > 0 {
					continue
				}
				waiting, keys := l.Waiting()
				if keys > 0 { // otherwise the key is not found
					used()
				}
				want := owed.parts(window, first, now)
				if keys == 0 {
					want = nil
				}
				var got []Part
				debts := l.Uncharged(func(int) bool { return true }, 64, now, nil)
				for _, d := range debts {
					got = append(got, d.Parts...)
				}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Fatalf("at %d, window %v, %d waiting: %v to be charged, want %v", now, window, waiting, got, want)
				}
				if what == "send" {
					sent.debts, sent.units, sent.first = debts, grants{}, first
					for _, p := range want {
						sent.units[p.At/length] = p.Units
					}
				}
				if keys > 0 {
					clear(owed)
				}
			}
		}
	})
}
