package remote

import (
	"fmt"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// slotsSuffix ends the Redis keys of concurrency limits. It keeps them apart from the state of a
// rule with windows that may have had the same name before.
const slotsSuffix = ":slots"

// Holder identifies a process of the fleet that holds units.
type Holder [8]byte

// NewSlotsRule encodes a limit of [limit.Concurrent] for one process. The process's units expire once it has
// not renewed them for ttl. Take acquires units for the process, Refund releases them, and Slots renews them or
// sets their number.
func NewSlotsRule(l limit.Limit, ttl time.Duration, holder Holder) (*Rule, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	if !l.IsConcurrent() {
		return nil, fmt.Errorf("%w: %v is not a concurrency limit", limit.ErrInvalidLimit, l)
	}
	if ttl <= 0 || ttl.Microseconds() > lua.LongestSlot {
		return nil, fmt.Errorf("%w: the slots' TTL is %v, must be above 0 and at most %v", limit.ErrInvalidOption, ttl, microseconds(lua.LongestSlot))
	}
	r := &Rule{quota: l.Quota(), slots: true}
	r.packed.put(0, lua.Concurrency, 1)
	r.packed.put(1, l.Quota(), 7)
	r.packed.setWindow(ttl.Microseconds())
	copy(r.packed[lua.RuleBytes-lua.ParameterBytes:], holder[:])
	r.packedText = string(r.packed[:])
	return r, nil
}
