package state

import (
	"fmt"
	"math/big"

	"github.com/tierlimit/tierlimit/lua"
)

// counter is a sliding counter, see lua/sliding_counter.lua. It does not say whether the rule
// estimates: then units of the oldest sub-window leave one by one, and else all at its end.
func (s *State) counter(f fields, _ int64) error {
	const counts = lua.HeaderBytes + 15
	if len(f.value) < counts {
		return fmt.Errorf("%w: it has %d bytes", ErrDamaged, len(f.value))
	}
	k, width := f.int(lua.HeaderBytes, 2), f.int(lua.HeaderBytes+2, 1)
	s.Algorithm, s.Encoding = "sliding-counter", fmt.Sprintf("%d counts of %d bytes", k+1, width)
	s.Window, s.Buckets = f.int(lua.HeaderBytes+3, 6), k
	if err := f.is(counts + (k+1)*width); err != nil {
		return err
	}
	if k < 1 || width < 1 || width > 6 || s.Window < 1 {
		return fmt.Errorf("%w: %d sub-windows of %d µs in %d bytes each", ErrDamaged, k, s.Window, width)
	}
	newest := s.subWindow(s.Newest)
	for i := newest - k; i <= newest; i++ {
		if i < 0 {
			continue
		}
		s.add(Units{
			Count:       f.int(counts+int(i%(k+1)*width), int(width)),
			ChargedFrom: s.beginning(i), ChargedUntil: min(s.beginning(i+1)-1, s.Newest),
			LeavesFrom: s.beginning(i + k), LeavesUntil: s.beginning(i + k + 1),
		})
	}
	return nil
}

// subWindow is the number of the sub-window that t lies in.
func (s *State) subWindow(t int64) int64 {
	return t/s.Window*s.Buckets + t%s.Window*s.Buckets/s.Window
}

// beginning is the first whole µs of a sub-window.
func (s *State) beginning(i int64) int64 {
	return i/s.Buckets*s.Window + (i%s.Buckets*s.Window+s.Buckets-1)/s.Buckets
}

// gcra is a theoretical arrival time, see lua/gcra.lua: a debt, which each unit makes larger by
// window/quota, and time makes smaller.
func (s *State) gcra(f fields, _ int64) error {
	const short, long = lua.HeaderBytes + 19, lua.HeaderBytes + 25
	if len(f.value) != short && len(f.value) != long {
		return f.is(short)
	}
	s.Algorithm, s.Encoding = "gcra", "a theoretical arrival time"
	tat := f.int(lua.HeaderBytes, 7)
	s.Quota, s.Window = f.int(lua.HeaderBytes+7, 6), f.int(lua.HeaderBytes+13, 6)
	if s.Quota < 1 || s.Window < 1 {
		return fmt.Errorf("%w: a limit of %d units in %d µs", ErrDamaged, s.Quota, s.Window)
	}
	// In parts of a µs, of which a µs has so many, all is whole: a unit takes interval of them.
	divisor := new(big.Int).GCD(nil, nil, big.NewInt(s.Quota), big.NewInt(s.Window)).Int64()
	parts, interval := s.Quota/divisor, s.Window/divisor
	debt := new(big.Int).Mul(big.NewInt(tat-s.Now), big.NewInt(parts))
	if len(f.value) == long {
		debt.Add(debt, big.NewInt(f.int(short, 6)))
	}
	if debt.Sign() <= 0 {
		return nil
	}
	units, rest := new(big.Int).DivMod(debt, big.NewInt(interval), new(big.Int))
	if rest.Sign() > 0 {
		units.Add(units, big.NewInt(1))
	} else {
		rest.SetInt64(interval) // all of the unit that leaves first is still there
	}
	if !units.IsInt64() {
		return fmt.Errorf("%w: a debt of %v units", ErrDamaged, units)
	}
	first := (rest.Int64() + parts - 1) / parts
	end := tat
	if len(f.value) == long {
		end++
	}
	s.add(Units{Count: units.Int64(), LeavesFrom: s.Now + first, LeavesUntil: end})
	return nil
}

// fixed is one count, see lua/fixed_window.lua. The window that it was charged in ends when the value says; window
// tells otherwise, of a rule whose windows begin at multiples of it.
func (s *State) fixed(f fields, window int64) error {
	s.Algorithm, s.Encoding = "fixed-window", "a count"
	if err := f.is(lua.HeaderBytes + 13); err != nil {
		return err
	}
	ends := f.int(lua.HeaderBytes, 7)
	u := Units{Count: f.int(lua.HeaderBytes+7, 6), ChargedUntil: s.Newest, LeavesFrom: ends, LeavesUntil: ends}
	if window > 0 {
		u.ChargedFrom = s.Newest - s.Newest%window
		u.LeavesFrom, u.LeavesUntil = u.ChargedFrom+window, u.ChargedFrom+window
	}
	s.add(u)
	return nil
}
