// Package gcra is the generic cell rate algorithm (ITU-T I.371, in its virtual scheduling form) as pure
// arithmetic on time stamps: no clock, no storage, no lock. The Redis script gcra.lua computes the same
// values, bit for bit.
//
// A key's whole state is its theoretical arrival time: the time at which its debt is paid off. Each unit
// moves that time by the interval T = window/quota. A cost fits while the theoretical arrival time stays
// within burst*T of now. T is kept as an exact fraction, so rates do not drift however odd they are. There
// is one exception: with a burst so small that (burst-1)*T < 1 µs, less than the rate is granted. Callers
// wait in whole microseconds, and such a burst does not make up for the rest of the last one. With a burst
// of 1, the loss is up to a microsecond per unit.
//
// Times are microseconds, 0 or more, on any clock that does not go backwards. All functions are safe for
// concurrent use, because they change nothing.
package gcra

import (
	"math/bits"

	"github.com/tierlimit/tierlimit/limit"
)

// Rate is a limit prepared for GCRA. Make one with [NewRate].
type Rate struct {
	burst      int64
	whole      int64 // T = whole + num/den µs, num < den, in lowest terms
	num, den   int64
	burstWhole int64 // burst*T, likewise
	burstPart  int64
}

// State is what GCRA stores for a key: the theoretical arrival time, in µs and the rate's fractions of a
// µs. The zero State belongs to a key that was never used.
type State struct {
	TAT  int64
	Part int64
}

// NewRate prepares a limit, which must be valid (see [limit.Limit.Validate]) and have a window: the methods of a
// Rate of [limit.Concurrent] panic. For a calendar limit, the rate is the quota per [limit.Limit.Window].
func NewRate(l limit.Limit) Rate {
	window, quota := l.Window().Microseconds(), l.Quota()
	g := gcd(window, quota)
	window, quota = window/g, quota/g
	r := Rate{burst: l.Burst(), whole: window / quota, num: window % quota, den: quota}
	r.burstWhole, r.burstPart = r.span(r.burst)
	return r
}

// Burst returns the number of units that a fresh key grants at once.
func (r Rate) Burst() int64 { return r.burst }

// Interval returns the time that one unit takes to return: whole + num/den microseconds.
func (r Rate) Interval() (whole, num, den int64) { return r.whole, r.num, r.den }

// Free returns how many units fit at now.
func (r Rate) Free(s State, now int64) int64 {
	s = settle(s, now)
	room, roomPart := now+r.burstWhole-s.TAT, r.burstPart-s.Part
	if roomPart < 0 {
		room, roomPart = room-1, roomPart+r.den
	}
	if room < 0 {
		return 0
	}
	// floor((room + roomPart/den) / T), numerator and denominator times den.
	hi, lo := bits.Mul64(uint64(room), uint64(r.den))
	lo, carry := bits.Add64(lo, uint64(roomPart), 0)
	free, _ := bits.Div64(hi+carry, lo, uint64(r.whole*r.den+r.num))
	return int64(free)
}

// Wait returns the time from now until cost units fit, in µs and rounded up, provided that no units are
// taken in the meantime. It is 0 if they fit now. The cost must be at most the burst, because more units
// never fit.
func (r Rate) Wait(s State, now, cost int64) int64 {
	whole, part := r.span(cost)
	part += s.Part - r.burstPart // above -den; rounded up below
	return max(0, s.TAT+whole-r.burstWhole-now+(part+r.den-1)/r.den)
}

// Take charges cost units at now, whether they fit or not, and returns the new state. The cost must not be negative.
// The state's TAT must stay below 2^63, which is not checked: keep the time of all debt (units times [Rate.Interval])
// far below that.
func (r Rate) Take(s State, now, cost int64) State {
	s = settle(s, now)
	whole, part := r.span(cost)
	s.TAT += whole
	s.Part += part
	if s.Part >= r.den {
		s.TAT++
		s.Part -= r.den
	}
	return s
}

// Reset returns the time from now, in µs rounded up, until the key is as if it had never been used.
func (r Rate) Reset(s State, now int64) int64 {
	s = settle(s, now)
	if s.Part > 0 {
		return s.TAT + 1 - now
	}
	return s.TAT - now
}

// settle forgets a debt that has been paid off. Unused time is not saved up.
func settle(s State, now int64) State {
	if s.TAT < now {
		return State{TAT: now}
	}
	return s
}

// span returns the time that c units take.
func (r Rate) span(c int64) (whole, part int64) {
	hi, lo := bits.Mul64(uint64(c), uint64(r.num))
	quotient, remainder := bits.Div64(hi, lo, uint64(r.den)) // num < den: no overflow
	return c*r.whole + int64(quotient), int64(remainder)
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
