package remote

import (
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/limit"
)

// calendar computes the arguments of a rule whose windows are those of the calendar.
// They change when a window ends, so they are kept until then.
type calendar struct {
	limit   limit.Limit
	current atomic.Pointer[calendarArgs]
}

type calendarArgs struct {
	start, end time.Time // of the window that they are right in
	args       ruleArgs
}

func (c *calendar) args(rule ruleArgs, now time.Time) *ruleArgs {
	if known := c.current.Load(); known != nil && !now.Before(known.start) && now.Before(known.end) {
		return &known.args
	}
	fresh := &calendarArgs{args: rule}
	fresh.start, fresh.end = c.limit.Calendar(now)
	before, _ := c.limit.Calendar(fresh.start.Add(-time.Microsecond))
	_, after := c.limit.Calendar(fresh.end)
	fresh.args[2] = "0" // no length: the dials say where windows begin
	for i, t := range []time.Time{before, fresh.start, fresh.end, after} {
		fresh.args.dial(i, t.UnixMicro())
	}
	c.current.Store(fresh)
	return &fresh.args
}
