package main

import (
	"errors"
	"flag"
	"strconv"

	"github.com/tierlimit/tierlimit/plan"
)

// needFlags adds the flags that state a need.
func needFlags(set *flag.FlagSet, n *plan.Need) {
	partFlag(set, "above", "need: the worst case exceeds the limit by at most this `part` of it, like 0, 0.1 or 10%", func(most float64) { n.Above = plan.AtMost(most) })
	partFlag(set, "late", "need: capacity returns late by at most this `part` of the window", func(most float64) { n.Late = plan.AtMost(most) })
	set.Func("bytes", "need: at most this many `bytes` of Redis's memory per full key", func(s string) (err error) {
		if n.Bytes, err = strconv.ParseInt(s, 0, 64); err != nil || n.Bytes < 1 { // plan takes 0 for no need
			return errors.New("must be a whole number, at least 1")
		}
		return nil
	})
}
