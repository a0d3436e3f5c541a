package state

import (
	"fmt"

	"github.com/tierlimit/tierlimit/lua"
)

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
	switch {
	case len(value) == 0:
		return nil, fmt.Errorf("%w: it is empty", ErrDamaged)
	case value[0] != lua.TagHolds:
		return nil, fmt.Errorf("%w (tag %d)", ErrUnknown, value[0])
	case len(value) < lua.HeaderBytes || (len(value)-lua.HeaderBytes)%size != 0:
		return nil, fmt.Errorf("%w: it has %d bytes", ErrDamaged, len(value))
	}
	f := fields{value}
	for from := lua.HeaderBytes; from < len(value); from += size {
		holds = append(holds, Hold{
			ID: uint64(f.int(from, 8)), GivesBack: value[from+8] == 1,
			Charged: f.int(from+9, 7), Ends: f.int(from+16, 7), Units: f.int(from+23, 7),
		})
	}
	return holds, nil
}
