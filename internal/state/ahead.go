package state

import (
	"fmt"

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
	err = f.areRecords(lua.TagLeases, 1, size)
	for from := 1; err == nil && from < len(value); from += size {
		leases = append(leases, Lease{ID: uint64(f.int(from, 8)), Ends: f.int(from+8, 7), Units: f.int(from+15, 7)})
	}
	return leases, err
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
	err = f.areRecords(lua.TagHolds, lua.HeaderBytes, size)
	for from := lua.HeaderBytes; err == nil && from < len(value); from += size {
		holds = append(holds, Hold{
			ID: uint64(f.int(from, 8)), GivesBack: value[from+8] == 1,
			Charged: f.int(from+9, 7), Ends: f.int(from+16, 7), Units: f.int(from+23, 7),
		})
	}
	return holds, err
}

// areRecords returns an error unless a value consists of a header with the tag, and records of one size.
func (f fields) areRecords(tag byte, header, size int) error {
	switch {
	case len(f) == 0:
		return fmt.Errorf("%w: it is empty", ErrDamaged)
	case f[0] != tag:
		return fmt.Errorf("%w (tag %d)", ErrUnknown, f[0])
	case len(f) < header || (len(f)-header)%size != 0:
		return fmt.Errorf("%w: it has %d bytes", ErrDamaged, len(f))
	}
	return nil
}
