package remote

import (
	"fmt"
	"strconv"

	"github.com/tierlimit/tierlimit/gcra"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// MaxLogQuota is the largest limit that a sliding log can hold: at 6 bytes a unit
// a key then takes 60 MB. Larger limits need another algorithm.
const MaxLogQuota = 10_000_000

// Rule is a limit under an algorithm, encoded once for the script. It is
// immutable and safe for concurrent use.
type Rule struct {
	args [lua.RuleArgs]any
	// perUnit is the script's work per unit of cost: a log writes each one.
	perUnit bool
}

// NewRule encodes a limit under an algorithm, which must not be automatic. The
// error says why they do not go together.
func NewRule(l limit.Limit, a limit.Algorithm) (*Rule, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	if err := a.Validate(); err != nil {
		return nil, err
	}
	r := &Rule{}
	var code int
	var dials [4]int64
	switch {
	case a.Same(limit.SlidingLog()):
		if l.Quota() > MaxLogQuota {
			return nil, fmt.Errorf("%w: a sliding log holds up to %d units, the limit is %v: use a sliding counter or GCRA", limit.ErrInvalidAlgorithm, MaxLogQuota, l)
		}
		code, r.perUnit = lua.SlidingLog, true
	case a.Same(limit.GCRA()):
		code = lua.GCRA
		rate := gcra.NewRate(l)
		dials[0] = rate.Burst()
		dials[1], dials[2], dials[3] = rate.Interval()
	case a.Same(limit.FixedWindow()):
		code = lua.FixedWindow
	case a.IsAutomatic():
		return nil, fmt.Errorf("%w: automatic must be resolved first", limit.ErrInvalidAlgorithm)
	default:
		code = lua.SlidingCounter
		dials[0] = int64(a.Buckets())
		if a.Rounding() == limit.Strict {
			dials[1] = 1
		}
	}
	r.args = [lua.RuleArgs]any{strconv.Itoa(code), decimal(l.Quota()), decimal(l.Window().Microseconds())}
	for i, dial := range dials {
		r.args[3+i] = decimal(dial)
	}
	return r, nil
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
