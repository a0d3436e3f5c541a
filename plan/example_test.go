package plan_test

import (
	"fmt"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/plan"
)

func ExampleChoose() {
	l := limit.PerMinute(5000)
	for _, need := range []plan.Need{
		{Above: plan.AtMost(0)},                          // never above the limit
		{Above: plan.AtMost(0), Late: plan.AtMost(0.02)}, // and capacity returns soon
		{Above: plan.AtMost(0), Late: plan.AtMost(0)},    // exact
		{Above: plan.AtMost(0.1), Late: plan.AtMost(1)},  // may space requests out
		{Above: plan.AtMost(1)},                          // a rough limit
		{Bytes: 300},                                     // the best for this memory
	} {
		p, err := plan.Choose(l, need)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Printf("%v: %v, %d bytes\n", need, p.Candidate, p.BytesFull)
	}

	// Output:
	// never above the limit, at most 6.25 % of the window late: sliding-counter:k=16,strict, 216 bytes
	// never above the limit, at most 2 % of the window late: sliding-counter:k=60,strict, 296 bytes
	// never above the limit, no capacity returned late: sliding-log, 28808 bytes
	// at most 10 % above the limit, at most 100 % of the window late: gcra:burst=500, 184 bytes
	// at most 100 % above the limit, at most 6.25 % of the window late: fixed-window, 168 bytes
	// at most 6.25 % of the window late, at most 300 bytes a key: sliding-counter:k=60,strict, 296 bytes

}
