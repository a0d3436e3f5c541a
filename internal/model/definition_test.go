package model

import (
	"math/big"
	"testing"

	"github.com/tierlimit/tierlimit/limit"
	"pgregory.net/rapid"
)

// The number of free units in a model is the one that its algorithm's definition gives for the whole history. The
// time of a question may go back as far as the last charge, so a question must not make a model forget anything.
func TestFreeIsAsDefined(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSubject(t)
		units := s.start(t).units
		newest := drawNow(t, s)
		var history grants
		for range rapid.IntRange(1, 40).Draw(t, "requests") {
			now := newest + drawStep(t, s, newest, Outcome{})
			free := units.free(now)
			if want := freeByDefinition(s, history, now); free != want {
				t.Fatalf("%v %v: %d free, want %d", s.l, s.a, free, want)
			}
			if free > 0 && rapid.Bool().Draw(t, "charge") {
				cost := min(free, drawCost(t, s, Outcome{Remaining: free}))
				units.charge(now, cost)
				history.add(now, cost)
				newest = now
			}
		}
	})
}

func freeByDefinition(s subject, history grants, now int64) int64 {
	quota, window := rat(s.l.Quota()), rat(s.window())
	k := int64(s.a.Buckets())
	used := new(big.Rat)
	add := func(cost int64, part *big.Rat) { used.Add(used, new(big.Rat).Mul(rat(cost), part)) }
	one := rat(1)

	switch {
	case s.a.Same(limit.SlidingLog()):
		for i, stamp := range history.stamps {
			if stamp > now-s.window() {
				add(history.costs[i], one)
			}
		}

	case s.a.Same(limit.FixedWindow()):
		for i, stamp := range history.stamps {
			if stamp/s.window() == now/s.window() {
				add(history.costs[i], one)
			}
		}

	case s.a.Same(limit.GCRA()):
		// This is a bucket that leaks quota units per window and holds burst units.
		level, since := new(big.Rat), int64(0)
		leak := func(until int64) {
			leaked := new(big.Rat).Mul(rat(until-since), new(big.Rat).Quo(quota, window))
			if level.Sub(level, leaked); level.Sign() < 0 {
				level = new(big.Rat)
			}
			since = until
		}
		for i, stamp := range history.stamps {
			leak(stamp)
			level.Add(level, rat(history.costs[i]))
		}
		leak(now)
		return floor(new(big.Rat).Sub(rat(s.l.Burst()), level))

	default:
		// Measured in bucket lengths, a time is the number of its bucket plus a fraction.
		at := func(t int64) *big.Rat { return new(big.Rat).Quo(rat(t*k), window) }
		present := at(now)
		for i, stamp := range history.stamps {
			begin := rat(floor(at(stamp)))
			// The part of the unit's bucket that is in (now-window, now].
			oldestEdge := new(big.Rat).Sub(present, rat(k))
			overlap := new(big.Rat).Sub(new(big.Rat).Add(begin, one), oldestEdge)
			switch {
			case overlap.Sign() <= 0:
			case overlap.Cmp(one) >= 0 || s.a.Rounding() == limit.Strict:
				add(history.costs[i], one)
			default:
				add(history.costs[i], overlap)
			}
		}
		return max(0, s.l.Quota()-ceil(used))
	}
	return s.l.Quota() - ceil(used)
}
