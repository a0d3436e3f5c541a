package state

import (
	"fmt"

	"github.com/tierlimit/tierlimit/lua"
)

// Lease is units that were charged in advance for one process, see lua/lease.lua.
type Lease struct {
	ID    uint64
	Ends  int64 // µs, on the key's own clock
	Units int64 // spent or not: that only the process knows
}

// DecodeLeases reads what is out on lease. Leases that have ended may be among them.
func DecodeLeases(value []byte) (leases []Lease, err error) {
	const size = 22
	f, err := records(value, lua.TagLeases, 1, size)
	for from := 1; err == nil && from < len(value); from += size {
		leases = append(leases, Lease{ID: uint64(f.int(from, 8)), Ends: f.int(from+8, 7), Units: f.int(from+15, 7)})
	}
	return leases, err
}

// Hold is units that were charged for something whose cost is known only afterwards, see
// lua/hold.lua. Times are in µs on the key's own clock.
type Hold struct {
	ID            uint64
	GivesBack     bool // at its end, if nobody has settled it by then; else it counts on
	Charged, Ends int64
	Units         int64 // 0: they were given back, and may yet be settled
}

// DecodeHolds reads the holds of a key. Those that have ended may be among them: they may be
// settled for some minutes yet.
func DecodeHolds(value []byte) (holds []Hold, err error) {
	const size = 30
	f, err := records(value, lua.TagHolds, lua.HeaderBytes, size)
	for from := lua.HeaderBytes; err == nil && from < len(value); from += size {
		holds = append(holds, Hold{
			ID: uint64(f.int(from, 8)), GivesBack: value[from+8] == 1,
			Charged: f.int(from+9, 7), Ends: f.int(from+16, 7), Units: f.int(from+23, 7),
		})
	}
	return holds, err
}

// records checks a value of records of one size behind a header, and returns its fields.
func records(value []byte, tag byte, header, size int) (f fields, err error) {
	switch {
	case len(value) == 0:
		return f, fmt.Errorf("%w: it is empty", ErrDamaged)
	case value[0] != tag:
		return f, fmt.Errorf("%w (tag %d)", ErrUnknown, value[0])
	case len(value) < header || (len(value)-header)%size != 0:
		return f, fmt.Errorf("%w: it has %d bytes", ErrDamaged, len(value))
	}
	return fields{value}, nil
}
