// Package plan knows what each way of counting costs and what it can let through, and chooses one that
// meets a given need. The need sets the trade-off between accuracy and memory with one dial.
//
//	p, err := plan.Choose(limit.PerMinute(5000), plan.Need{Above: plan.AtMost(0), Late: plan.AtMost(0.05)})
//	fmt.Println(p) // sliding-counter:k=24,strict for 5000/1m: ...
//
// A rule takes a need with tiered.Need, and returns its plan with Rule.Plan.
package plan
