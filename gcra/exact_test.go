package gcra

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/limit"
)

// exact implements the definition of GCRA in fractions of any precision.
type exact struct {
	interval *big.Rat // window/quota
	room     *big.Rat // burst*interval
	arrival  *big.Rat // theoretical arrival time
}

func newExact(l limit.Limit) *exact {
	interval := big.NewRat(l.Window().Microseconds(), l.Quota())
	return &exact{
		interval: interval,
		room:     new(big.Rat).Mul(rat(l.Burst()), interval),
		arrival:  new(big.Rat),
	}
}

// debt returns how far the arrival time is ahead of now.
func (e *exact) debt(now int64) *big.Rat {
	if e.arrival.Cmp(rat(now)) < 0 {
		return new(big.Rat)
	}
	return new(big.Rat).Sub(e.arrival, rat(now))
}

func (e *exact) span(cost int64) *big.Rat { return new(big.Rat).Mul(rat(cost), e.interval) }

func (e *exact) free(now int64) int64 {
	room := new(big.Rat).Sub(e.room, e.debt(now))
	if room.Sign() < 0 {
		return 0
	}
	return floor(room.Quo(room, e.interval))
}

func (e *exact) wait(now, cost int64) int64 {
	excess := new(big.Rat).Add(e.debt(now), e.span(cost))
	return max(0, ceil(excess.Sub(excess, e.room)))
}

func (e *exact) take(now, cost int64) {
	e.arrival = new(big.Rat).Add(rat(now), e.debt(now))
	e.arrival.Add(e.arrival, e.span(cost))
}

func (e *exact) reset(now int64) int64 { return ceil(e.debt(now)) }

func rat(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

func floor(r *big.Rat) int64 { return new(big.Int).Div(r.Num(), r.Denom()).Int64() }

func ceil(r *big.Rat) int64 { return -floor(new(big.Rat).Neg(r)) }

// arrivalOf returns the arrival time that a State represents.
func arrivalOf(r Rate, s State) *big.Rat {
	_, _, den := r.Interval()
	return new(big.Rat).Add(rat(s.TAT), big.NewRat(s.Part, den))
}

// drawLimit draws limits from 1 unit in 366 days to 2^40 in a millisecond, with bursts up to the largest valid
// one.
func drawLimit(t *rapid.T) limit.Limit {
	quota := rapid.OneOf(
		rapid.Int64Range(1, 20),
		rapid.SampledFrom([]int64{700_000, 3_000_000, 999_983}),
		rapid.Int64Range(1, limit.MaxQuota),
		rapid.Int64Range(limit.MaxQuota-3, limit.MaxQuota),
	).Draw(t, "quota")
	window := rapid.OneOf(
		rapid.Int64Range(limit.MinWindow.Microseconds(), 1010),
		rapid.SampledFrom([]int64{1_000_000, 60_000_000, 86_400_000_000}),
		rapid.Int64Range(limit.MinWindow.Microseconds(), limit.MaxWindow.Microseconds()),
		rapid.Int64Range(limit.MaxWindow.Microseconds()-3, limit.MaxWindow.Microseconds()),
	).Draw(t, "window")
	l := limit.Per(quota, time.Duration(window)*time.Microsecond)
	burst := rapid.OneOf(
		rapid.Just(int64(0)),
		rapid.Int64Range(1, 5),
		rapid.Int64Range(1, quota),
		rapid.Int64Range(1, limit.MaxQuota),
	).Draw(t, "burst")
	if bursting := l.WithBurst(burst); bursting.Validate() == nil {
		l = bursting
	}
	return l
}

// Law 10: over random histories, every answer equals that of exact fractions, to the microsecond.
func TestEqualsExactFractions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLimit(t)
		r, want := NewRate(l), newExact(l)
		whole, num, den := r.Interval()
		if interval := new(big.Rat).Add(rat(whole), big.NewRat(num, den)); interval.Cmp(want.interval) != 0 || num >= den {
			t.Fatalf("%v: the interval is %d + %d/%d", l, whole, num, den)
		}
		var s State
		now := rapid.SampledFrom([]int64{0, 1, 1_790_123_456_789_012}).Draw(t, "start")
		for range rapid.IntRange(1, 50).Draw(t, "requests") {
			now += drawStep(t, r, s, now, l)
			free := r.Free(s, now)
			if free != want.free(now) {
				t.Fatalf("%v: %d free, want %d", l, free, want.free(now))
			}
			if reset := r.Reset(s, now); reset != want.reset(now) {
				t.Fatalf("%v: reset after %d µs, want %d", l, reset, want.reset(now))
			}
			cost := drawCost(t, r, free)
			wait := r.Wait(s, now, cost)
			if wait != want.wait(now, cost) {
				t.Fatalf("%v: %d wait for %d µs, want %d", l, cost, wait, want.wait(now, cost))
			}
			if (wait == 0) != (cost <= free) {
				t.Fatalf("%v: %d of %d free wait for %d µs", l, cost, free, wait)
			}
			// Now and then, a unit that does not fit is charged, too, because a lowered limit leaves such states
			// behind.
			if cost <= free || rapid.IntRange(0, 9).Draw(t, "all the same") == 0 {
				s = r.Take(s, now, cost)
				want.take(now, cost)
				if arrivalOf(r, s).Cmp(want.arrival) != 0 || s.Part >= den {
					t.Fatalf("%v: the arrival time is %+v, want %v", l, s, want.arrival)
				}
			}
		}
	})
}

// drawStep draws how much time passes, mostly until about the moment when something changes.
func drawStep(t *rapid.T, r Rate, s State, now int64, l limit.Limit) int64 {
	moment := rapid.SampledFrom([]int64{
		0,
		r.Wait(s, now, 1),
		r.Wait(s, now, r.Burst()),
		r.Reset(s, now),
		l.Window().Microseconds(),
		rapid.Int64Range(0, 2*l.Window().Microseconds()).Draw(t, "anywhere"),
	}).Draw(t, "moment")
	return max(0, moment+rapid.Int64Range(-1, 1).Draw(t, "neighbour"))
}

// drawCost prefers costs close to the largest that fits.
func drawCost(t *rapid.T, r Rate, free int64) int64 {
	cost := rapid.SampledFrom([]int64{
		1, free, free + 1, r.Burst(), rapid.Int64Range(1, r.Burst()).Draw(t, "any cost"),
	}).Draw(t, "cost")
	return min(max(1, cost), r.Burst())
}

// A wait is exact: at its end the cost fits, and a microsecond before that it does not. The same is true for
// Reset and the whole burst.
func TestWaitsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLimit(t)
		r := NewRate(l)
		const now = 1_790_123_456_789_012
		s := r.Take(State{}, now, rapid.Int64Range(1, r.Burst()).Draw(t, "used"))
		cost := rapid.Int64Range(1, r.Burst()).Draw(t, "cost")
		if w := r.Wait(s, now, cost); r.Free(s, now+w) < cost || w > 0 && r.Free(s, now+w-1) >= cost {
			t.Fatalf("%v: %+v: %d do not become free after exactly %d µs", l, s, cost, w)
		}
		if w := r.Reset(s, now); r.Free(s, now+w) < r.Burst() || r.Free(s, now+w-1) >= r.Burst() {
			t.Fatalf("%v: %+v: the burst does not become free after exactly %d µs", l, s, w)
		}
	})
}

// The sum of a product's low half and a part may carry into the high half. That happens about once in 2^24 random
// states, too rarely for the tests above.
func TestFreeCarries(t *testing.T) {
	const quota = limit.MaxQuota - 87
	l := limit.Per(quota, limit.MaxWindow-time.Microsecond).WithBurst(quota - 1)
	const now = 1_790_123_456_789_012
	s := State{TAT: now + 15_414_812}
	want := newExact(l)
	want.arrival = rat(s.TAT)
	if got := NewRate(l).Free(s, now); got != want.free(now) {
		t.Errorf("%d free, want %d", got, want.free(now))
	}
}
