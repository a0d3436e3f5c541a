package tiered

import (
	"time"

	"github.com/tierlimit/tierlimit/internal/option"
)

// DenialLife sets how long a denial of the rule may be remembered in process, 0 to 1 second; the
// default is 1 second. For that long a process may continue to deny a key after another process has
// refunded units, reset the key or raised the limit (law 2). With 0 no denial is remembered: every
// request goes to Redis. [RememberDenials] sets how many are remembered.
func DenialLife(d time.Duration) RuleOption {
	return func(c *ruleConfig) error {
		if d < 0 || d > denialLife {
			return option.Invalid("denials remembered for %v, must be between 0 and %v", d, denialLife)
		}
		c.denialLife = d
		return nil
	}
}
