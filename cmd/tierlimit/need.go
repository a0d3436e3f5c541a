package main

import (
	"flag"

	"github.com/tierlimit/tierlimit/plan"
)

// needFlags adds the flags that state a need.
func needFlags(set *flag.FlagSet, n *plan.Need) {
	partFlag(set, "above", "need: the worst case exceeds the limit by at most this `part` of it, like 0, 0.1 or 10%", func(most float64) { n.Above = plan.AtMost(most) })
	partFlag(set, "late", "need: capacity returns late by at most this `part` of the window", func(most float64) { n.Late = plan.AtMost(most) })
	set.Int64Var(&n.Bytes, "bytes", 0, "need: at most this many `bytes` of Redis's memory per full key")
}
