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
	switch {
	case len(value) == 0:
		return nil, fmt.Errorf("%w: it is empty", ErrDamaged)
	case value[0] != lua.TagLeases:
		return nil, fmt.Errorf("%w (tag %d)", ErrUnknown, value[0])
	case (len(value)-1)%size != 0:
		return nil, fmt.Errorf("%w: it has %d bytes", ErrDamaged, len(value))
	}
	f := fields{value}
	for from := 1; from < len(value); from += size {
		leases = append(leases, Lease{ID: uint64(f.int(from, 8)), Ends: f.int(from+8, 7), Units: f.int(from+15, 7)})
	}
	return leases, nil
}
