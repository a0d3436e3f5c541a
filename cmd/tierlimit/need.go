package main

import (
	"flag"

	"github.com/tierlimit/tierlimit/plan"
)

// needFlags lets the command line state a need.
func needFlags(set *flag.FlagSet, n *plan.Need) {
	tolerance := func(name, usage string, t *plan.Tolerance) {
		set.Func(name, usage, func(s string) error {
			most, err := part(s)
			*t = plan.AtMost(most)
			return err
		})
	}
	tolerance("above", "need: the worst case at most this `part` of the limit above it, as 0, 0.1 or 10%", &n.Above)
	tolerance("late", "need: capacity at most this `part` of the window late", &n.Late)
	set.Int64Var(&n.Bytes, "bytes", 0, "need: at most this many `bytes` of Redis's memory per full key")
}
