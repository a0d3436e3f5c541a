package model

import (
	"math/big"
	"slices"
)

// gcra holds one time per key: the theoretical arrival time, at which the key would be unused again. Each unit
// moves it forward by interval, and it may be at most tolerance ahead of the present. The times are exact fractions
// of a microsecond.
type gcra struct {
	window    int64
	interval  *big.Rat // window/quota: how long a unit takes to return
	tolerance *big.Rat // burst*interval
	most      int64    // the largest debt, in units, that charges of the past or a change may lead to
	arrival   *big.Rat // nil before the first charge
}

func newGCRA(quota, window, burst int64) *gcra {
	interval := big.NewRat(window, quota)
	tolerance := new(big.Rat).Mul(interval, rat(burst))
	return &gcra{window: window, interval: interval, tolerance: tolerance, most: room(max(quota, burst), 0)}
}

// ahead returns how far the arrival time is after t.
func (g *gcra) ahead(t int64) *big.Rat {
	if g.arrival == nil || g.arrival.Cmp(rat(t)) <= 0 {
		return new(big.Rat)
	}
	return new(big.Rat).Sub(g.arrival, rat(t))
}

func (g *gcra) span(cost int64) *big.Rat { return new(big.Rat).Mul(g.interval, rat(cost)) }

func (g *gcra) free(t int64) int64 {
	room := new(big.Rat).Sub(g.tolerance, g.ahead(t))
	return max(0, floor(room.Quo(room, g.interval))) // a larger limit may have left more debt
}

func (g *gcra) charge(t, cost int64) {
	arrival := new(big.Rat).Add(rat(t), g.ahead(t))
	g.arrival = arrival.Add(arrival, g.span(cost))
}

func (g *gcra) wait(t, cost int64) int64 {
	excess := new(big.Rat).Add(g.ahead(t), g.span(cost))
	return max(0, ceil(excess.Sub(excess, g.tolerance)))
}

// chargePast adds to the debt the debt that these units alone would have left by t.
func (g *gcra) chargePast(t int64, past []Past) (charged int64, changed bool) {
	alone := *g
	alone.arrival = nil
	for _, p := range slices.Backward(past) {
		alone.charge(t-p.Age, min(p.Units, g.most))
	}
	debt, ahead := alone.ahead(t), g.ahead(t)
	if room := new(big.Rat).Sub(g.span(g.most), ahead); debt.Cmp(room) > 0 {
		debt = room
	}
	if debt.Sign() <= 0 {
		return 0, false
	}
	ahead.Add(ahead, debt)
	g.arrival = ahead.Add(ahead, rat(t))
	return floor(debt.Quo(debt, g.interval)), true
}

// refund gives back at most what is certainly left of the charge. At first a charge makes the debt larger by
// span(charged) than it would be without the charge. That difference shrinks only while the key would otherwise
// have no debt. So at least span(charged) less the time since the charge is left. At most this much is given back,
// and whole units of it are reported.
func (g *gcra) refund(t, stamp, charged, units int64) (given int64, changed bool) {
	left := new(big.Rat).Sub(g.span(charged), rat(t-stamp))
	if left.Sign() < 0 || g.arrival == nil || g.arrival.Cmp(rat(t)) <= 0 {
		return 0, false
	}
	back := g.span(units)
	if left.Cmp(back) < 0 {
		back = left
	}
	g.arrival = new(big.Rat).Sub(g.arrival, back)
	return floor(new(big.Rat).Quo(back, g.interval)), true
}

// under returns the debt under another limit: the same number of units at the newest charge, at most that limit's
// largest debt, rounded up to what the denominator of its interval can express.
func (g *gcra) under(newest, quota, window, burst int64) *gcra {
	c := newGCRA(quota, window, burst)
	if g.arrival == nil {
		return c
	}
	debt := new(big.Rat).Quo(g.ahead(newest), g.interval)
	switch {
	case debt.Cmp(rat(c.most)) >= 0:
		debt = c.span(c.most)
	case c.interval.Cmp(g.interval) == 0:
		c.arrival = g.arrival
		return c
	default:
		debt.Mul(debt, c.interval)
		whole := floor(debt)
		part := new(big.Rat).Sub(debt, rat(whole))
		parts := new(big.Rat).SetInt(c.interval.Denom())
		part = rat(ceil(part.Mul(part, parts)))
		debt.Add(rat(whole), part.Quo(part, parts))
	}
	c.arrival = new(big.Rat).Add(rat(newest), debt)
	return c
}

// past returns the fullest past that the arrival time allows. Each unit moved the arrival time by at least an
// interval. So the j-th newest unit came at least j intervals before the arrival time, and not after the newest
// charge. Units are listed, in groups, if they are less than a window, and less than longest, older than the newest
// charge.
func (g *gcra) past(newest, longest, most int64) (past []logEntry) {
	known := new(big.Rat).Sub(g.arrival, rat(newest-min(g.window, longest)+1))
	units := known.Quo(known, g.interval)
	n := most
	if units.Cmp(rat(most)) < 0 {
		n = floor(units)
	}
	size := groupSize(n)
	for i := int64(0); i < n; i += size {
		stamp := floor(new(big.Rat).Sub(g.arrival, g.span(i+1)))
		past = append(past, logEntry{min(newest, stamp), min(size, n-i)})
	}
	return past
}

// owed returns the debt at t in units, rounded up.
func (g *gcra) owed(t int64) int64 {
	return ceil(new(big.Rat).Quo(g.ahead(t), g.interval))
}

func (g *gcra) reset(t int64) int64 { return ceil(g.ahead(t)) }

// clone shares the fractions: none of them is changed after it is stored.
func (g *gcra) clone() tally {
	c := *g
	return &c
}

func rat(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

// floor rounds down, as big.Int.Div does because the denominator of a Rat is positive.
func floor(r *big.Rat) int64 { return new(big.Int).Div(r.Num(), r.Denom()).Int64() }

func ceil(r *big.Rat) int64 { return -floor(new(big.Rat).Neg(r)) }
