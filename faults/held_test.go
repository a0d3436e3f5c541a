//go:build unix

package faults

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"time"
)

// belief is a time during which a holder was sure to hold units: from its first look at a slot to the last look
// that found the slot held. The last look is directly before the slot was released. If the slot was lost instead,
// it is up to 10 ms before a running holder knew of the loss. How long a holder that stood still would have been
// sure cannot be seen from outside. But its first look after the pause is counted, so a holder that still believes
// then is found out.
type belief struct {
	key         string
	units       int64
	from, until int64
}

// beliefs returns the beliefs about all slots of a journal.
func (j journal) beliefs() (all []belief) {
	of := make(map[int64]int)
	for _, e := range j {
		if e.What != acted {
			continue
		}
		i, known := of[e.ID]
		if !known {
			i = len(all)
			of[e.ID] = i
			all = append(all, belief{e.Key, e.Units, e.At, e.At})
		}
		all[i].from, all[i].until = min(all[i].from, e.At), max(all[i].until, e.At)
	}
	return all
}

// mostHeld returns the most units of a key that were held at any moment outside the time between from and to, and
// the most at any moment at all.
func mostHeld(all []belief, from, to int64) (most, ever int64) {
	type step struct{ at, units int64 }
	steps := make(map[string][]step)
	for _, b := range all {
		steps[b.key] = append(steps[b.key], step{b.from, b.units}, step{b.until, -b.units})
	}
	for _, of := range steps {
		slices.SortFunc(of, func(a, b step) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.units, b.units)) })
		units := int64(0)
		for _, s := range of {
			units += s.units
			if ever = max(ever, units); s.at < from || s.at > to {
				most = max(most, units)
			}
		}
	}
	return most, ever
}

// charge is a hold as its holder knows it.
type charge struct {
	rule, key      string
	estimate, used int64
	at             int64 // when it was charged, on Redis's clock; 0 if the holder did not learn that it was
	settling       int64 // when it was about to be settled, on Redis's clock; math.MaxInt64 if never
	made           int64 // when it had certainly been settled, on Redis's clock; math.MaxInt64 if never
	cancelled      bool  // it was refused, and certainly cancelled
}

// charges returns all holds of a journal. lost is the number of holds that Redis no longer knew when they were
// settled.
func (j journal) charges() (all []*charge, lost int64) {
	of := make(map[int64]*charge)
	type open struct {
		*charge
		since   int64
		refused bool
	}
	var waiting []open
	for _, e := range j {
		c := of[e.ID]
		switch e.What {
		case asked:
			c = &charge{rule: e.Rule, key: e.Key, estimate: e.Units, settling: math.MaxInt64, made: math.MaxInt64}
			of[e.ID], all = c, append(all, c)
		case held:
			c.at = e.Redis
		case refused:
			waiting = append(waiting, open{c, e.At, true})
		case settling:
			c.used, c.settling = e.Units, e.Redis
		case settled:
			waiting = append(waiting, open{c, e.At, false})
		case settledAll:
			lost = e.Units
			waiting = slices.DeleteFunc(waiting, func(o open) bool {
				if o.since >= e.At {
					return false
				}
				if o.cancelled = o.refused; !o.refused {
					o.made = e.Redis
				}
				return true
			})
		}
	}
	return all, lost
}

// inTheEnd returns the units that a hold may be charged once its holder has ended and its life is over.
func (c *charge) inTheEnd(givenBack bool) (least, most int64) {
	unsettled := c.estimate
	if givenBack {
		unsettled = 0
	}
	switch {
	case c.cancelled:
		return 0, 0
	case c.made < math.MaxInt64:
		return c.used, c.used
	case c.settling < math.MaxInt64:
		return min(unsettled, c.used), max(unsettled, c.used)
	case c.at > 0:
		return unsettled, unsettled
	}
	return 0, unsettled // the hold may or may not have been charged
}

// countsAt returns the least that a hold counts at a time on Redis's clock, if its holder learned that it was
// charged.
func (c *charge) countsAt(now int64, givenBack bool) int64 {
	over := givenBack && now >= c.at+holderTTL.Microseconds()
	switch {
	case c.at == 0 || c.at > now || over && c.made > c.at+holderTTL.Microseconds():
		return 0
	case c.settling <= now:
		return c.used
	case over:
		return 0
	}
	return c.estimate
}

// fullest returns the most units that were held or used in any window. The charges are those of one key, and none
// is settled with more than its estimate.
func fullest(all []*charge, givenBack bool) (most int64) {
	slices.SortFunc(all, func(a, b *charge) int { return cmp.Compare(a.at, b.at) })
	first := 0
	for last, c := range all { // the count can grow only when something is charged
		for all[first].at <= c.at-window.Microseconds() {
			first++
		}
		units := int64(0)
		for _, other := range all[first : last+1] {
			units += other.countsAt(c.at, givenBack)
		}
		most = max(most, units)
	}
	return most
}

// The checks of beliefs and charges find the errors that they are made to find.
func TestChecksOfWhatIsHeld(t *testing.T) {
	slot := func(id, units, at int64) event { return event{What: acted, ID: id, Key: "k", Units: units, At: at} }
	a := journal{slot(1, 2, 10), slot(1, 2, 20), slot(2, 3, 30), slot(2, 3, 40)}
	b := journal{slot(1, 3, 20), slot(1, 3, 25)}
	if most, ever := mostHeld(slices.Concat(a.beliefs(), b.beliefs()), 0, 0); most != 3 || ever != 3 {
		t.Errorf("one after the other: %d, %d", most, ever)
	}
	b = append(b, slot(1, 3, 31))
	if most, ever := mostHeld(slices.Concat(a.beliefs(), b.beliefs()), 30, 35); most != 3 || ever != 6 {
		t.Errorf("at the same time: %d, and %d from 30 to 35", most, ever)
	}

	of := func(events ...event) *charge {
		all, _ := append(journal{{What: asked, ID: 1, Units: 7}}, events...).charges()
		return all[0]
	}
	told := event{What: held, ID: 1, Redis: 1000}
	settle, done := event{What: settling, ID: 1, Units: 3, Redis: 2000}, event{What: settled, ID: 1, At: 5}
	after := holderTTL.Microseconds()
	for name, c := range map[string]struct {
		*charge
		kept, givenBack [2]int64 // at least and at most
		counts          [3]int64 // when it is charged, when it is settled, after its life if it is given back
	}{
		"asked":              {of(), [2]int64{0, 7}, [2]int64{}, [3]int64{}},
		"refused":            {of(event{What: refused, ID: 1, At: 5}), [2]int64{0, 7}, [2]int64{}, [3]int64{}},
		"cancelled":          {of(event{What: refused, ID: 1, At: 5}, event{What: settledAll, At: 6}), [2]int64{}, [2]int64{}, [3]int64{}},
		"held":               {of(told), [2]int64{7, 7}, [2]int64{}, [3]int64{7, 7, 0}},
		"settling":           {of(told, settle), [2]int64{3, 7}, [2]int64{0, 3}, [3]int64{7, 3, 0}},
		"settled":            {of(told, settle, done), [2]int64{3, 7}, [2]int64{0, 3}, [3]int64{7, 3, 0}},
		"too early to say":   {of(told, settle, done, event{What: settledAll, At: 5, Redis: 3000}), [2]int64{3, 7}, [2]int64{0, 3}, [3]int64{7, 3, 0}},
		"surely settled":     {of(told, settle, done, event{What: settledAll, At: 6, Redis: 3000}), [2]int64{3, 3}, [2]int64{3, 3}, [3]int64{7, 3, 3}},
		"settled after life": {of(told, settle, done, event{What: settledAll, At: 6, Redis: 1001 + after}), [2]int64{3, 3}, [2]int64{3, 3}, [3]int64{7, 3, 0}},
	} {
		for i, want := range [][2]int64{c.kept, c.givenBack} {
			if least, most := c.inTheEnd(i == 1); least != want[0] || most != want[1] {
				t.Errorf("%s: %d to %d in the end, want %v", name, least, most, want)
			}
		}
		if got := [3]int64{c.countsAt(1000, true), c.countsAt(2000, true), c.countsAt(1000+after, true)}; got != c.counts {
			t.Errorf("%s: counts %v, want %v", name, got, c.counts)
		}
	}
	second := window.Microseconds()
	all := []*charge{
		{at: 1, estimate: 5, settling: math.MaxInt64, made: math.MaxInt64},
		{at: second, estimate: 4, used: 1, settling: second + 2, made: second + 9},
		{at: second + 3, estimate: 3, settling: math.MaxInt64, made: math.MaxInt64},
	}
	if got := fullest(all, false); got != 9 { // 5 and 4, then 1 and 3
		t.Errorf("%d units in a window", got)
	}
	if holderTTL < time.Millisecond {
		t.Error("the times above do not fit")
	}
}
