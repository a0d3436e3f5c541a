package main

import (
	"fmt"
	"math"
)

// heldGoals returns the goals for holds, whose cost is known afterwards, and for slots of limits on concurrency.
func (r *report) heldGoals() (goals []goal) {
	one := func(callers int) size { return size{callers: callers} }
	for _, subject := range []string{nameHoldGCRA, nameHoldCounter} {
		goals = append(goals,
			goal{work: "Hold + Settle, 1 caller", figure: subject + ": p50 by that of two bare EVALSHA", bound: 1.3,
				measured: r.cell(holdsAloneGroup, one(1), subject).ratioTo(r.cell(holdsAloneGroup, one(1), nameTwoReturns), p50)},
			goal{work: "Hold + Settle, 64 callers of one key", figure: subject + ": decisions/s by that of two bare EVALSHA", bound: 5, atLeast: true,
				measured: r.cell(holdsGroup, one(64), subject).ratioTo(r.cell(holdsGroup, one(64), nameTwoReturns), perSecond)})
	}
	goals = append(goals, goal{work: "Acquire + Release, 64 callers of one key", figure: "decisions/s by that of a semaphore in a sorted set", bound: 3, atLeast: true,
		measured: r.cell(slotsGroup, one(64), nameSlots).ratioTo(r.cell(slotsGroup, one(64), nameSemaphore), perSecond)})
	for _, keys := range renewedKeys {
		work := fmt.Sprintf("%s slots of %s", thousands(renewedSlots), keysInWords(keys))
		renewed := goal{work: work, figure: "renewals of all of them in a third of the TTL", bound: 1, measured: math.NaN()}
		lost := goal{work: work, figure: "lost", bound: 0, measured: math.NaN()} // lost slots need no renewal
		for _, n := range r.Renewals {
			if n.keys == keys {
				renewed.measured, lost.measured = n.values[batchesPerThird], n.values[lostSlots]
			}
		}
		goals = append(goals, renewed, lost)
	}
	return goals
}
