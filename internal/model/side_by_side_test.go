package model

import (
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"pgregory.net/rapid"
)

// sideBySide has a random history of a key under rules with the same window that are in force at the same time, and
// the units that were charged in it and not given back.
type sideBySide struct {
	m       *key
	now     int64
	most    int64 // units that the smallest rule inherits, or charges whether or not they fit
	id      uint64
	charges []sideCharge
}

type sideCharge struct {
	stamp, units int64
	back         int64  // the number of these that were given back
	hold         uint64 // 0: no hold
	ends         int64  // when the hold is given back; 0: never
}

// in returns the units charged in the given time up to now, and how many of them were not given back.
func (s *sideBySide) in(length int64) (charged, left int64) {
	for _, c := range s.charges {
		if c.stamp > s.now-length {
			charged, left = charged+c.units, left+c.units-c.back
		}
	}
	return charged, left
}

// fits reports whether the smallest rule charges this many units, however many are free. A counter keeps its units
// for up to a sub-window longer than a window.
func (s *sideBySide) fits(units int64) bool {
	charged, _ := s.in(2 * s.m.limit.Window().Microseconds())
	return charged+units <= s.most
}

// Laws 1 and 11 hold where rules with different algorithms and limits are in force side by side. Neither a log nor
// a strict counter grants a unit if there would then be more units in a window than its limit, whichever rule
// charged the others, and whatever else was done meanwhile under a smaller rule. Charges that do not depend on free
// units are bounded by four times the smallest limit.
func TestLaws1And11RulesSideBySide(t *testing.T) {
	exact := []limit.Algorithm{limit.SlidingLog(), limit.SlidingLogZSet(), limit.SlidingCounter(4, limit.Strict), limit.SlidingCounter(16, limit.Strict)}
	rapid.Check(t, func(t *rapid.T) {
		rules := make([]subject, rapid.IntRange(2, 3).Draw(t, "rules"))
		s := sideBySide{most: 80}
		for i := range rules {
			rules[i] = subject{limit.Per(rapid.Int64Range(5, 20).Draw(t, "quota"), time.Second), rapid.SampledFrom(exact).Draw(t, "algorithm")}
			s.most = min(s.most, maxLimits*rules[i].l.Quota())
		}
		s.m, s.now = rules[0].start(t), drawNow(t, rules[0])
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			s.now += rapid.Int64Range(0, rules[0].window()/5).Draw(t, "pause")
			r := rapid.SampledFrom(rules).Draw(t, "rule")
			if err := s.m.Use(r.l, r.a); err != nil {
				t.Fatal(err)
			}
			s.giveBack()
			if granted := s.next(t); granted > 0 {
				if _, all := s.in(r.window()); all > r.l.Quota() {
					t.Fatalf("%v, %v grants %d units, and then there are %d in its window", r.l, r.a, granted, all)
				}
			}
		}
	})
}

// giveBack gives back the holds that have ended by now.
func (s *sideBySide) giveBack() {
	s.m.GiveBack(s.now)
	for i := range s.charges {
		if c := &s.charges[i]; c.hold != 0 && c.ends > 0 && c.ends <= s.now {
			c.back, c.hold = c.units, 0
		}
	}
}

// next performs one operation under the rule in force, and returns how many units it granted.
func (s *sideBySide) next(t *rapid.T) int64 {
	units := rapid.Int64Range(1, 8).Draw(t, "units")
	window := s.m.limit.Window().Microseconds()
	var c *sideCharge // some charge
	if len(s.charges) > 0 {
		c = &s.charges[rapid.IntRange(max(0, len(s.charges)-8), len(s.charges)-1).Draw(t, "charge")]
	}
	s.id++
	switch rapid.SampledFrom([]string{"take", "up to", "up to", "peek", "lease", "hold", "extend", "settle", "refund", "past"}).Draw(t, "operation") {
	case "take":
		return s.charged(s.m.Decide(s.now, units))
	case "up to":
		return s.charged(s.m.TakeUpTo(s.now, units))
	case "peek":
		s.m.Peek(s.now, units)
	case "lease": // which is refunded like other charges
		return s.charged(s.m.Lease(s.now, units, Terms{ID: s.id, Most: 20, Life: window / 10}))
	case "hold":
		terms := HoldTerms{ID: s.id, Life: rapid.Int64Range(1, window).Draw(t, "life"), GivesBack: rapid.Bool().Draw(t, "gives back")}
		granted := s.charged(s.m.Hold(s.now, units, true, terms))
		if granted > 0 {
			c = &s.charges[len(s.charges)-1]
			c.hold = s.id
			if terms.GivesBack {
				c.ends = s.now + terms.Life
			}
		}
		return granted
	case "extend":
		if c != nil && c.hold != 0 {
			terms := HoldTerms{ID: c.hold, Life: units * window / 20, GivesBack: c.ends > 0}
			s.m.Extend(s.now, terms)
			if terms.GivesBack {
				c.ends = max(c.ends, s.now+terms.Life)
			}
		}
	case "settle":
		if c == nil || c.hold == 0 || units > c.units && !s.fits(units-c.units) {
			break
		}
		out := s.m.Settle(s.now, units, c.hold)
		c.hold = 0
		if units < c.units {
			c.back = out.Granted
		} else if units > c.units {
			s.charges = append(s.charges, sideCharge{stamp: s.now, units: units - c.units})
		}
	case "refund":
		if c != nil && c.hold == 0 && c.back == 0 {
			c.back = s.m.Refund(s.now, c.stamp, c.units, min(units, c.units)).Granted
		}
	case "past":
		if age := rapid.Int64Range(0, window-1).Draw(t, "age"); s.fits(units) {
			s.m.Charge(s.now, "instance", int64(s.id), []Past{{units, age}})
			s.charges = append(s.charges, sideCharge{stamp: s.now - age, units: units})
		}
	}
	return 0
}

// charged records the units that were granted.
func (s *sideBySide) charged(out Outcome) int64 {
	if out.Granted > 0 {
		s.charges = append(s.charges, sideCharge{stamp: out.Stamp, units: out.Granted})
	}
	return out.Granted
}

// Law 1: a counter gives back no unit of a charge that a log has forgotten meanwhile, though its sub-window still
// counts.
func TestLaw1RefundOfWhatALogHasForgotten(t *testing.T) {
	const second, start = 1_000_000, 10_000_000
	l := limit.Per(5, time.Second)
	m, err := New(l, limit.SlidingLog())
	if err != nil {
		t.Fatal(err)
	}
	m.Decide(start, 1)
	m.Decide(start+second/5, 1)         // in the same quarter of the window
	m.Decide(start+second+second/20, 1) // the first unit has left
	if err := m.Use(l, limit.SlidingCounter(4, limit.Strict)); err != nil {
		t.Fatal(err)
	}
	if out := m.Refund(start+second+second/10, start, 1, 1); out.Granted != 0 || out.Remaining != 3 {
		t.Errorf("refunded %+v, want nothing: two units have not left", out)
	}
}
