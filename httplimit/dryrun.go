package httplimit

import (
	"slices"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// shown leaves out rules on a dry run: a client that is told of one would slow down
// for it.
func shown(charges []charge, requests []tiered.Request, decisions []limit.Decision) ([]charge, []tiered.Request, []limit.Decision) {
	if !slices.ContainsFunc(decisions, func(d limit.Decision) bool { return d.DryRun }) {
		return charges, requests, decisions
	}
	var c []charge
	var q []tiered.Request
	var ds []limit.Decision
	for i, d := range decisions {
		if !d.DryRun {
			c, q, ds = append(c, charges[i]), append(q, requests[i]), append(ds, d)
		}
	}
	return c, q, ds
}
