package remote

import (
	"fmt"
	"strconv"
	"time"

	"github.com/tierlimit/tierlimit/gcra"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// MaxLogQuota is the largest limit that a sliding log can hold: at 6 bytes a unit
// a key then takes 60 MB. Larger limits need another algorithm.
const MaxLogQuota = 10_000_000

// Rule is a limit under an algorithm, encoded once for the script. It is safe for
// concurrent use.
type Rule struct {
	args ruleArgs
	// perUnit is the script's work per unit of cost: a log writes each one.
	perUnit bool
	// calendar is set for windows of the calendar, whose arguments change with time.
	calendar *calendar
}

// ruleArgs are the script's arguments for a rule: algorithm, quota, window, dials.
type ruleArgs [lua.RuleArgs]any

func (a *ruleArgs) dial(i int, n int64) { a[3+i] = decimal(n) }

// NewRule encodes a limit under an algorithm, which must not be automatic. The
// error says why they do not go together.
func NewRule(l limit.Limit, a limit.Algorithm) (*Rule, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	if err := a.Validate(); err != nil {
		return nil, err
	}
	if l.IsCalendar() && a != limit.FixedWindow() {
		return nil, fmt.Errorf("%w: %v counts no windows of the calendar, the limit is %v: use a fixed window", limit.ErrInvalidAlgorithm, a, l)
	}
	r := &Rule{}
	for i := range r.args {
		r.args[i] = "0"
	}
	r.args[1] = decimal(l.Quota())
	r.args[2] = decimal(l.Window().Microseconds())
	code := 0
	switch {
	case a.Same(limit.SlidingLog()):
		if l.Quota() > MaxLogQuota {
			return nil, fmt.Errorf("%w: a sliding log holds up to %d units, the limit is %v: use a sliding counter or GCRA", limit.ErrInvalidAlgorithm, MaxLogQuota, l)
		}
		code, r.perUnit = lua.SlidingLog, true
		if a == limit.SlidingLogZSet() {
			code = lua.SlidingLogZSet
		}
	case a.Same(limit.GCRA()):
		code = lua.GCRA
		rate := gcra.NewRate(l)
		whole, num, den := rate.Interval()
		r.args.dial(0, rate.Burst())
		r.args.dial(1, whole)
		r.args.dial(2, num)
		r.args.dial(3, den)
	case a.Same(limit.FixedWindow()):
		code = lua.FixedWindow
		if l.IsCalendar() {
			r.calendar = &calendar{limit: l}
		}
	case a.IsAutomatic():
		return nil, fmt.Errorf("%w: automatic must be resolved first", limit.ErrInvalidAlgorithm)
	default:
		code = lua.SlidingCounter
		r.args.dial(0, int64(a.Buckets()))
		if a.Rounding() == limit.Strict {
			r.args.dial(1, 1)
		}
	}
	r.args[0] = strconv.Itoa(code)
	return r, nil
}

// at is the rule's arguments at a moment of virtual time; 0 is now.
func (r *Rule) at(clock int64) *ruleArgs {
	if r.calendar == nil {
		return &r.args
	}
	now := time.UnixMicro(clock)
	if clock == 0 {
		now = time.Now()
	}
	return r.calendar.args(r.args, now)
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
