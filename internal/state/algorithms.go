package state

import (
	"fmt"
	"math"
	"math/big"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// counter decodes a sliding counter; see lua/sliding_counter.lua. The value does not say whether the rule
// estimates. If it does, units of the oldest sub-window leave one by one; otherwise all of them leave at
// its end.
func (s *State) counter(f fields, _ int64) error {
	const counts = lua.HeaderBytes + 15
	if len(f) < counts {
		return fmt.Errorf("%w: it has %d bytes", ErrDamaged, len(f))
	}
	k, width := f.int(lua.HeaderBytes, 2), f.int(lua.HeaderBytes+2, 1)
	s.Algorithm, s.Encoding = "sliding-counter", fmt.Sprintf("%d counts of %d bytes", k+1, width)
	s.Window, s.Buckets = f.int(lua.HeaderBytes+3, 6), k
	if err := f.is(counts + (k+1)*width); err != nil {
		return err
	}
	if k < 1 || k > limit.MaxBuckets || width < 1 || width > 6 || s.Window < k {
		return fmt.Errorf("%w: %d sub-windows of %d µs in %d bytes each", ErrDamaged, k, s.Window, width)
	}
	if total := f.int(lua.HeaderBytes+9, 6); total > 2*lua.MaxKeyUnits {
		return fmt.Errorf("%w: a total of %d units", ErrDamaged, total)
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

// subWindow returns the number of the sub-window that contains t.
func (s *State) subWindow(t int64) int64 {
	return t/s.Window*s.Buckets + t%s.Window*s.Buckets/s.Window
}

// beginning returns the first whole µs of a sub-window.
func (s *State) beginning(i int64) int64 {
	return i/s.Buckets*s.Window + (i%s.Buckets*s.Window+s.Buckets-1)/s.Buckets
}

// longestDebt is the longest debt that the script accepts: twice the largest after a change of limits, which is four
// times that of the longest window.
const longestDebt = 8 * lua.LongestWindow

// gcra decodes a theoretical arrival time; see lua/gcra.lua. It stands for a debt, which each unit
// increases by window/quota, and which time decreases.
func (s *State) gcra(f fields, _ int64) error {
	const short, long = lua.HeaderBytes + 19, lua.HeaderBytes + 25
	if len(f) != short && len(f) != long {
		return f.is(short)
	}
	s.Algorithm, s.Encoding = "gcra", "a theoretical arrival time"
	tat := f.int(lua.HeaderBytes, 7)
	s.Quota, s.Window = f.int(lua.HeaderBytes+7, 6), f.int(lua.HeaderBytes+13, 6)
	if s.Quota < 1 || s.Quota > lua.MaxKeyUnits || s.Window < 1 || s.Window > lua.LongestWindow {
		return fmt.Errorf("%w: a limit of %d units in %d µs", ErrDamaged, s.Quota, s.Window)
	}
	// Count in fractions of a µs, so that all numbers are whole: a µs has "parts" fractions, and a unit
	// takes "interval" fractions.
	divisor := new(big.Int).GCD(nil, nil, big.NewInt(s.Quota), big.NewInt(s.Window)).Int64()
	parts, interval := s.Quota/divisor, s.Window/divisor
	part := int64(0)
	if len(f) == long {
		part = f.int(short, 6)
	}
	if tat < s.Newest || tat > s.Newest+longestDebt || part >= parts {
		return fmt.Errorf("%w: at its last charge, its debt was of %d µs and %d parts of %d", ErrDamaged, tat-s.Newest, part, parts)
	}
	debt := new(big.Int).Mul(big.NewInt(tat-s.Now), big.NewInt(parts))
	debt.Add(debt, big.NewInt(part))
	if debt.Sign() <= 0 {
		return nil
	}
	units, rest := new(big.Int).DivMod(debt, big.NewInt(interval), new(big.Int))
	if rest.Sign() > 0 {
		units.Add(units, big.NewInt(1))
	} else {
		rest.SetInt64(interval) // the unit that leaves first is still there in full
	}
	if !units.IsInt64() { // of a limit that no rule can have
		units.SetInt64(math.MaxInt64)
	}
	first := (rest.Int64() + parts - 1) / parts
	end := tat
	if len(f) == long {
		end++
	}
	s.add(Units{Count: units.Int64(), LeavesFrom: s.Now + first, LeavesUntil: end})
	return nil
}

// fixed decodes one count; see lua/fixed_window.lua. The window in which it was charged ends at the time
// in the value. If window is given, the rule's windows begin at multiples of it, and this determines the
// end instead.
func (s *State) fixed(f fields, window int64) error {
	s.Algorithm, s.Encoding = "fixed-window", "a count"
	if err := f.is(lua.HeaderBytes + 13); err != nil {
		return err
	}
	ends := f.int(lua.HeaderBytes, 7)
	u := Units{Count: f.int(lua.HeaderBytes+7, 6), ChargedUntil: s.Newest, LeavesFrom: ends, LeavesUntil: ends}
	if u.Count > lua.MaxKeyUnits {
		return fmt.Errorf("%w: a count of %d", ErrDamaged, u.Count)
	}
	if window > 0 {
		u.ChargedFrom = s.Newest - s.Newest%window
		u.LeavesFrom, u.LeavesUntil = u.ChargedFrom+window, u.ChargedFrom+window
	}
	s.add(u)
	return nil
}
