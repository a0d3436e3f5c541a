package tiered

import (
	"fmt"

	"github.com/tierlimit/tierlimit/internal/option"
)

// UnsettledPolicy says what happens to a [Hold] that ends without having been settled, for example
// because its process died.
type UnsettledPolicy uint8

const (
	// Keep, the default, leaves the held units charged until they leave the window. Use it if the units
	// have most likely been used.
	Keep UnsettledPolicy = iota
	// GiveBack gives the held units back. Use it if an unfinished job costs nothing. The next
	// decision about the key gives them back, but processes may remember a denial for up to a
	// second (see [DenialLife]). With GiveBack, Redis checks for ended holds at each decision of the
	// rule, which takes 1.4 to 2.5 times the processor time of a decision without it.
	GiveBack
)

// String returns "keep" or "give back".
func (p UnsettledPolicy) String() string {
	switch p {
	case Keep:
		return "keep"
	case GiveBack:
		return "give back"
	}
	return fmt.Sprintf("UnsettledPolicy(%d)", p)
}

// UnsettledPolicy returns what happens to holds of the rule that end without being settled.
func (r *Rule) UnsettledPolicy() UnsettledPolicy { return r.config.unsettled }

// Unsettled sets what happens to holds that end without having been settled; the default is [Keep].
// If instances have different policies, those with [GiveBack] give back only the holds of instances
// with [GiveBack]. Unsettled cannot be combined with a limit of [limit.Concurrent], whose units are
// held in slots.
func Unsettled(p UnsettledPolicy) RuleOption {
	return option.Set(func(c *ruleConfig) { c.unsettled, c.unsettledSet = p, true },
		p <= GiveBack, "Unsettled of %v, must be Keep or GiveBack", p)
}
