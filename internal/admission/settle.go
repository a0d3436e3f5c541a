package admission

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
	"github.com/tierlimit/tierlimit/tiered"
)

// Afterwards returns the context in which a charge is corrected that was made in ctx. It does not end
// with ctx, and the time by which the charge was to be decided ([tiered.DecideBy]) does not count.
func Afterwards(ctx context.Context) context.Context {
	return remote.WithoutDecideBy(context.WithoutCancel(ctx))
}

// Settle makes what was charged for a call, a time ago, what it took.
func Settle(ctx context.Context, q tiered.Request, d *limit.Decision, actual int64, ago time.Duration) error {
	if q.Rule.Limit().IsConcurrent() {
		return nil // is given back as it is; a rule of RuleFor
	}
	if d.Granted == 0 {
		return nil // let through on a dry run, which charged nothing
	}
	switch more := max(0, actual) - q.Cost; {
	case more > 0:
		return q.Rule.ChargeUsed(ctx, q.Key, more)
	case more < 0 && d.Degraded() && ago >= q.Rule.Limit().Window():
		return nil // has left the window, which nothing but we can tell: see Rule.Refund
	case more < 0:
		return q.Rule.Refund(ctx, q.Key, d, -more)
	}
	return nil
}

// SaidCost is what a handler says that its call took.
type SaidCost struct {
	outer context.Context
	units atomic.Int64 // -1: nothing was said
}

type saidCostKey struct{}

// AskCost returns a context in which a handler can say what its call took, by [SetCost].
func AskCost(ctx context.Context) (context.Context, *SaidCost) {
	c := &SaidCost{outer: ctx}
	c.units.Store(-1)
	return context.WithValue(ctx, saidCostKey{}, c), c
}

// SetCost says what a call took, at least 0, to all who asked in its context, and whether anybody
// did. It is safe for concurrent use.
func SetCost(ctx context.Context, units int64) bool {
	for asked := false; ; asked = true {
		c, ok := ctx.Value(saidCostKey{}).(*SaidCost)
		if !ok {
			return asked
		}
		c.units.Store(max(0, units)) // others than -1
		ctx = c.outer
	}
}

// Units is what was said last, if anything was.
func (c *SaidCost) Units() (units int64, said bool) {
	units = c.units.Load()
	return units, units >= 0
}
