package remote

import (
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/limit"
)

// calendar packs a rule with calendar windows. The packed rule changes when a window ends, and is
// kept until then.
type calendar struct {
	limit   limit.Limit
	current atomic.Pointer[calendarWindow]
}

type calendarWindow struct {
	start, end time.Time // of the window in which packed is valid
	packed     packedRule
}

func (c *calendar) packed(rule packedRule, now time.Time) *packedRule {
	if known := c.current.Load(); known != nil && !now.Before(known.start) && now.Before(known.end) {
		return &known.packed
	}
	fresh := &calendarWindow{packed: rule}
	fresh.start, fresh.end = c.limit.Calendar(now)
	before, _ := c.limit.Calendar(fresh.start.Add(-time.Microsecond))
	_, after := c.limit.Calendar(fresh.end)
	fresh.packed.setWindow(0) // no length: the parameters say where windows begin
	for i, t := range []time.Time{before, fresh.start, fresh.end, after} {
		// A virtual clock may start in a window that began before 1970. That window is said to begin in 1970,
		// because Redis holds no earlier times.
		fresh.packed.setParameter(7*i, max(0, t.UnixMicro()), 7)
	}
	c.current.Store(fresh)
	return &fresh.packed
}
