package state

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tierlimit/tierlimit/lua"
)

// Holder is a process that holds units of a limit of limit.Concurrent; see lua/concurrent.lua.
type Holder struct {
	ID    uint64
	Units int64
	Until int64 // µs, on the key's own clock: when its units stop counting if it is not heard of again
}

// slots decodes the units that processes hold at the same time. Only processes that still count are
// included. The value does not say when the units were charged.
func (s *State) slots(f fields, _ int64) error {
	const records, size = lua.HeaderBytes + 21, 22
	s.Algorithm, s.Encoding = "concurrency", "a line for each process"
	if length := len(f) - records; length <= 0 || length%size != 0 || length > lua.MaxHolders*size {
		return fmt.Errorf("%w: it has %d bytes", ErrDamaged, len(f))
	}
	total, first, last := f.int(lua.HeaderBytes, 7), f.int(lua.HeaderBytes+7, 7), f.int(lua.HeaderBytes+14, 7)
	if total < 1 || total > lua.MaxHolders*lua.MaxKeyUnits || first > last || last > s.Newest+lua.LongestSlot {
		return fmt.Errorf("%w: processes hold %d units until %d to %d µs after the last change", ErrDamaged, total, first-s.Newest, last-s.Newest)
	}
	for from := records; from < len(f); from += size {
		h := Holder{ID: uint64(f.int(from, 8)), Until: f.int(from+8, 7), Units: f.int(from+15, 7)}
		if h.Until > s.Now && h.Until <= last && h.Units > 0 && h.Units <= lua.MaxKeyUnits { // the script drops other lines
			s.Holders = append(s.Holders, h)
		}
	}
	slices.SortFunc(s.Holders, func(a, b Holder) int { return cmp.Or(cmp.Compare(a.Until, b.Until), cmp.Compare(a.ID, b.ID)) })
	for _, h := range s.Holders {
		s.add(Units{Count: h.Units, LeavesFrom: h.Until, LeavesUntil: h.Until})
	}
	return nil
}
