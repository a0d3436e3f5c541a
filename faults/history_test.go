//go:build unix

package faults

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tierlimit/tierlimit/limit"
)

// counter is a model of one key as if all processes' calls came one after another: a number of units used, out of a
// quota that does not come back.
var counter = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, _, output any) (bool, any) {
		used, o := state.(int64), output.(operation)
		free := quota - used
		switch {
		case o.Allowed:
			return o.Tier == limit.TierRedis && o.Remaining == free-o.Cost && o.Remaining >= 0, used + o.Cost
		case o.Tier == limit.TierRedis:
			return o.Cost > free && o.Remaining == free, used
		case o.Tier == limit.TierLocal:
			// Fewer units may be free now than at the time of the remembered denial.
			return o.Cost > free && o.Remaining >= free, used
		}
		return false, used // decided without Redis
	},
}

// linearizable reports whether the operations of one key can be put into an order in which each happens between its
// call and its return, and all results agree with counter.
func linearizable(operations []operation) porcupine.CheckResult {
	history := make([]porcupine.Operation, len(operations))
	for i, o := range operations {
		call := o.Call
		if !o.Allowed && (o.Tier == limit.TierLocal || o.Remaining == 0) {
			// No units come back. So if this answer was right at any moment, it was also right when it was given.
			// With only one possible moment, the checker need not try them all.
			call = o.Return
		}
		history[i] = porcupine.Operation{ClientId: o.Client, Call: call, Return: o.Return, Output: o}
	}
	return porcupine.CheckOperationsTimeout(counter, history, time.Minute)
}

// linearizable finds each kind of wrong history.
func TestHistoriesThatAreNotLinearizable(t *testing.T) {
	redis := func(call, end, cost int64, allowed bool, remaining int64) operation {
		return operation{Call: call, Return: end, Cost: cost, Allowed: allowed, Remaining: remaining, Tier: limit.TierRedis}
	}
	local := func(call, end, cost, remaining int64) operation {
		return operation{Call: call, Return: end, Cost: cost, Remaining: remaining, Tier: limit.TierLocal}
	}
	for name, c := range map[string]struct {
		history []operation
		want    porcupine.CheckResult
	}{
		"one after the other": {[]operation{redis(1, 2, quota-2, true, 2), redis(3, 4, 3, false, 2), redis(5, 6, 2, true, 0), local(7, 8, 3, 2)}, porcupine.Ok},
		"at the same time":    {[]operation{redis(1, 9, 1, true, quota-2), redis(1, 9, 1, true, quota-1)}, porcupine.Ok},
		"charged twice":       {[]operation{redis(1, 2, 1, true, quota-1), redis(3, 4, 1, true, quota-3)}, porcupine.Illegal},
		"not charged":         {[]operation{redis(1, 2, 1, true, quota-1), redis(3, 4, 1, true, quota-1)}, porcupine.Illegal},
		"granted too much":    {[]operation{redis(1, 2, quota, true, 0), redis(3, 4, 1, true, -1)}, porcupine.Illegal},
		"denied too early":    {[]operation{redis(1, 2, quota-2, true, 2), redis(3, 4, 2, false, 2)}, porcupine.Illegal},
		"denied from memory":  {[]operation{redis(1, 2, quota-2, true, 2), local(3, 4, 2, 2)}, porcupine.Illegal},
		"answered in the wrong order": {[]operation{redis(1, 2, 1, true, quota-2), redis(3, 4, 1, true, quota-1)},
			porcupine.Illegal},
		"without Redis": {[]operation{{Call: 1, Return: 2, Cost: 1, Allowed: true, Remaining: quota - 1, Tier: limit.TierFallback}}, porcupine.Illegal},
	} {
		if got := linearizable(c.history); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
