package tiered

import (
	"time"

	"github.com/tierlimit/tierlimit/internal/option"
)

// DenialLife sets how long a denial of the rule may be remembered in process, 0 to 1
// second; the default is 1 second. For that long a process may go on to deny what was
// refunded, reset or raised by another (law 2). 0 remembers none: every request goes to
// Redis. How many are remembered, [RememberDenials] says.
func DenialLife(d time.Duration) RuleOption {
	return func(c *ruleConfig) error {
		if d < 0 || d > denialLife {
			return option.Invalid("denials remembered for %v, must be between 0 and %v", d, denialLife)
		}
		c.denialLife = d
		return nil
	}
}
