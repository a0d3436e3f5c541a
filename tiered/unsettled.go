package tiered

import (
	"fmt"

	"github.com/tierlimit/tierlimit/internal/option"
)

// UnsettledPolicy says what becomes of a [Hold] that comes to its end and was not settled,
// because its process died.
type UnsettledPolicy uint8

const (
	// Keep counts it as what was held, until that leaves the window. It is the default, and right
	// where what was held has most likely been used.
	Keep UnsettledPolicy = iota
	// GiveBack gives back what was held: right where an unfinished job costs nothing. It happens
	// with the next decision about the key, and processes remember a denial for at most a second
	// (see [DenialLife]). Redis then looks for what has ended with each decision of the rule: that
	// takes 1.4 to 2.5 times the processor time of a decision without.
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

// UnsettledPolicy is what becomes of the rule's holds that nobody settles.
func (r *Rule) UnsettledPolicy() UnsettledPolicy { return r.config.unsettled }

// Unsettled sets what becomes of holds that nobody has settled when they come to their end; the
// default is [Keep]. Each instance goes by its own rule: those that give back do so for the holds
// of such instances. It does not go with a limit of [limit.Concurrent], whose units are held in slots.
func Unsettled(p UnsettledPolicy) RuleOption {
	return func(c *ruleConfig) error {
		if p > GiveBack {
			return option.Invalid("%v, must be Keep or GiveBack", p)
		}
		c.unsettled, c.unsettledSet = p, true
		return nil
	}
}
