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
		{Above: plan.AtMost(0.1), Late: plan.AtMost(1)},  // may be spaced out
		{Above: plan.AtMost(1)},                          // a rough limit
		{Bytes: 300},                                     // the best for so much memory
	} {
		p, err := plan.Choose(l, need)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Printf("%v: %v, %d bytes\n", need, p.Candidate, p.BytesFull)
	}
	_, err := plan.Choose(l, plan.Need{Above: plan.AtMost(0), Late: plan.AtMost(0.01), Bytes: 200})
	fmt.Println(err)
	// Output:
}
