package model

import "math/big"

// gcra holds one time per key: the theoretical arrival time, at which the key
// would be unused again. Each unit moves it on by interval, and it may be at
// most tolerance ahead of the present. The times are exact fractions of a
// microsecond.
type gcra struct {
	interval  *big.Rat // window/quota: how long a unit takes to return
	tolerance *big.Rat // burst*interval
	arrival   *big.Rat // nil before the first charge
}

func newGCRA(quota, window, burst int64) *gcra {
	interval := big.NewRat(window, quota)
	return &gcra{interval: interval, tolerance: new(big.Rat).Mul(interval, rat(burst))}
}

// ahead is how far the arrival time lies after t.
func (g *gcra) ahead(t int64) *big.Rat {
	if g.arrival == nil || g.arrival.Cmp(rat(t)) <= 0 {
		return new(big.Rat)
	}
	return new(big.Rat).Sub(g.arrival, rat(t))
}

func (g *gcra) span(cost int64) *big.Rat { return new(big.Rat).Mul(g.interval, rat(cost)) }

func (g *gcra) free(t int64) int64 {
	room := new(big.Rat).Sub(g.tolerance, g.ahead(t))
	return floor(room.Quo(room, g.interval))
}

func (g *gcra) charge(t, cost int64) {
	arrival := new(big.Rat).Add(rat(t), g.ahead(t))
	g.arrival = arrival.Add(arrival, g.span(cost))
}

func (g *gcra) wait(t, cost int64) int64 {
	excess := new(big.Rat).Add(g.ahead(t), g.span(cost))
	return max(0, ceil(excess.Sub(excess, g.tolerance)))
}

func (g *gcra) reset(t int64) int64 { return ceil(g.ahead(t)) }

// clone shares the fractions: none of them is changed once it is stored.
func (g *gcra) clone() tally {
	c := *g
	return &c
}

func rat(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

// floor rounds down; big.Int.Div does, for the positive denominator of a Rat.
func floor(r *big.Rat) int64 { return new(big.Int).Div(r.Num(), r.Denom()).Int64() }

func ceil(r *big.Rat) int64 { return -floor(new(big.Rat).Neg(r)) }
