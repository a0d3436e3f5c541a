package main

import (
	"flag"

	"github.com/tierlimit/tierlimit/plan"
)

// needFlags adds the flags that state a need.
func needFlags(set *flag.FlagSet, n *plan.Need) {
	partFlag(set, "above", "need: the worst case at most this `part` of the limit above it, as 0, 0.1 or 10%", func(most float64) { n.Above = plan.AtMost(most) })
	partFlag(set, "late", "need: capacity at most this `part` of the window late", func(most float64) { n.Late = plan.AtMost(most) })
	set.Int64Var(&n.Bytes, "bytes", 0, "need: at most this many `bytes` of Redis's memory per full key")
}
