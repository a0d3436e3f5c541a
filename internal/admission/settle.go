package admission

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
	"github.com/tierlimit/tierlimit/tiered"
)

// Afterwards returns the context in which a charge made in ctx is corrected. It does not end with ctx,
// and the time by which the charge was to be decided ([tiered.DecideBy]) does not apply to it.
func Afterwards(ctx context.Context) context.Context {
	return remote.WithoutDecideBy(context.WithoutCancel(ctx))
}

// Lasting returns the context in which a charge is made that will be corrected. It does not end with ctx,
// unless ctx has already ended: if a call could leave while Redis decides, nobody would know whether there
// is a charge to correct.
func Lasting(ctx context.Context) context.Context {
	if ctx.Err() != nil {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// Settle corrects the charge for a call, made ago, to the actual cost.
func Settle(ctx context.Context, q tiered.Request, d *limit.Decision, actual int64, ago time.Duration) error {
	switch more := max(0, actual) - q.Cost; {
	case q.Rule.Limit().IsConcurrent(): // slots are given back anyway; this is a rule of RuleFor
	case d.Granted == 0: // a dry run let the call through and charged nothing
	case more > 0:
		return q.Rule.ChargeUsed(ctx, q.Key, min(more, lua.MaxUnits)) // more than that is an error, and would be free
	case more < 0 && d.Degraded() && ago >= q.Rule.Limit().Window():
		// has left the window, which only this code can tell: see Rule.Refund
	case more < 0:
		return q.Rule.Refund(ctx, q.Key, d, -more)
	}
	return nil
}

// ReportedCost is the cost of a call as its handler reports it.
type ReportedCost struct {
	outer context.Context
	units atomic.Int64 // -1: nothing was reported
}

type reportedCostKey struct{}

// WithReportedCost returns a context in which a handler can report the cost of its call with [SetCost].
func WithReportedCost(ctx context.Context) (context.Context, *ReportedCost) {
	c := &ReportedCost{outer: ctx}
	c.units.Store(-1)
	return context.WithValue(ctx, reportedCostKey{}, c), c
}

// SetCost reports the cost of a call, at least 0, to every ReportedCost in its context. It returns false if
// there is none. It is safe for concurrent use.
func SetCost(ctx context.Context, units int64) bool {
	for asked := false; ; asked = true {
		c, ok := ctx.Value(reportedCostKey{}).(*ReportedCost)
		if !ok {
			return asked
		}
		c.units.Store(max(0, units)) // never -1
		ctx = c.outer
	}
}

// Units returns the cost that was reported last. said is false if none was reported.
func (c *ReportedCost) Units() (units int64, said bool) {
	units = c.units.Load()
	return units, units >= 0
}
