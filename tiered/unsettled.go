package tiered

import (
	"fmt"

	"github.com/tierlimit/tierlimit/internal/option"
)

// UnsettledPolicy says what happens to a [Hold] that ends without having been settled, for example
// because its process died.
type UnsettledPolicy uint8

const (
	// Keep counts the held units until they leave the window. It is the default; use it if they
	// have most likely been used.
	Keep UnsettledPolicy = iota
	// GiveBack gives the held units back; use it if an unfinished job costs nothing. They are given
	// back by the next decision about the key, but processes may remember a denial for up to a
	// second (see [DenialLife]). With GiveBack, Redis checks for ended holds with each decision of
	// the rule, which takes 1.4 to 2.5 times the processor time of a decision without.
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

// UnsettledPolicy returns what happens to the rule's holds that nobody settles.
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
