package state

import (
	"fmt"
	"math"

	"github.com/tierlimit/tierlimit/lua"
)

// Lease is units that were charged in advance for one process; see lua/lease.lua.
type Lease struct {
	ID    uint64
	Ends  int64 // µs, on the key's own clock
	Units int64 // spent or not, which only the process knows
}

// DecodeLeases returns the leases of a key. Leases that have ended may be among them.
func DecodeLeases(value []byte) (leases []Lease, err error) {
	const size = 22
	f := fields(value)
	if err := f.areRecords(lua.TagLeases, 1, size, lua.MaxLeases); err != nil {
		return nil, err
	}
	for from := 1; from < len(value); from += size {
		l := Lease{ID: uint64(f.int(from, 8)), Ends: f.int(from+8, 7), Units: f.int(from+15, 7)}
		if l.Units > lua.MaxKeyUnits {
			return nil, fmt.Errorf("%w: a lease of %d units", ErrDamaged, l.Units)
		}
		leases = append(leases, l)
	}
	return leases, nil
}

// Hold is units that were charged for work whose cost is known only afterwards; see lua/hold.lua. Times
// are in µs on the key's own clock.
type Hold struct {
	ID            uint64
	GivesBack     bool // at its end, if it has not been settled by then; otherwise the units stay charged
	Charged, Ends int64
	Units         int64 // 0: the units were given back, but the hold may still be settled
}

// DecodeHolds returns the holds of a key. Holds that have ended may be among them, because they may still
// be settled for some minutes.
func DecodeHolds(value []byte) (holds []Hold, err error) {
	const size = 30
	f := fields(value)
	if err := f.areRecords(lua.TagHolds, lua.HeaderBytes, size, lua.MaxHolds); err != nil {
		return nil, err
	}
	if first, last := f.int(1, 7), f.int(8, 7); max(first, last) > lua.EndOfTime {
		return nil, fmt.Errorf("%w: its holds end from %d to %d µs", ErrDamaged, first, last)
	}
	for from := lua.HeaderBytes; from < len(value); from += size {
		id := uint64(f.int(from, 8))
		if id == math.MaxUint64 {
			continue // the line is free
		}
		holds = append(holds, Hold{ // whose numbers the script does not check, but bounds
			ID: id, GivesBack: value[from+8] == 1, Charged: min(f.int(from+9, 7), lua.EndOfTime),
			Ends: min(f.int(from+16, 7), lua.EndOfTime), Units: min(f.int(from+23, 7), lua.MaxKeyUnits),
		})
	}
	return holds, nil
}

// areRecords returns an error unless a value consists of a header with the tag, and at most that many records of
// one size.
func (f fields) areRecords(tag byte, header, size, most int) error {
	switch {
	case len(f) == 0:
		return fmt.Errorf("%w: it is empty", ErrDamaged)
	case f[0] != tag:
		return fmt.Errorf("%w (tag %d)", ErrUnknown, f[0])
	case len(f) < header || (len(f)-header)%size != 0, len(f) > header+most*size:
		return fmt.Errorf("%w: it has %d bytes", ErrDamaged, len(f))
	}
	return nil
}
