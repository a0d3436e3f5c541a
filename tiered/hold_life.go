package tiered

import (
	"fmt"
	"time"

	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// LifeOfRule in place of a life, in [Rule.Hold], [Rule.HoldUpTo], [Limiter.HoldAll], [Hold.Extend] and the
// Hold of a [Request], stands for the [HoldLife] of the rule. If the rule has none, the error wraps
// [limit.ErrInvalidHold]. Do not calculate with it: [Rule.HoldLife] is the duration.
const LifeOfRule time.Duration = -1

const (
	shortestHold = time.Millisecond
	longestHold  = lua.LongestHold * time.Microsecond
)

// HoldLife sets how long a hold of the rule lasts where the caller says [LifeOfRule], 1 ms to a day; there
// is no default. So the time can be configured beside the limit, for instance in a rules file, instead of
// in the program.
func HoldLife(d time.Duration) RuleOption {
	return func(c *ruleConfig) error {
		if d < shortestHold || d > longestHold {
			return option.Invalid("HoldLife of %v, must be between %v and %v", d, shortestHold, longestHold)
		}
		c.holdLife = d
		return nil
	}
}

// HoldLife is how long a hold lasts where the caller says [LifeOfRule]; 0 if the rule does not say.
func (r *Rule) HoldLife() time.Duration { return r.config.holdLife }

// lifeOf is how long a hold lasts for which a caller passed that life.
func (r *Rule) lifeOf(said time.Duration) time.Duration {
	if said == LifeOfRule {
		return r.config.holdLife
	}
	return said
}

// checkHold finds what is wrong with a hold.
func (r *Rule) checkHold(life time.Duration) error {
	if life == LifeOfRule && r.config.holdLife == 0 {
		return fmt.Errorf("%w: it is to last for the HoldLife of rule %q, which has none", limit.ErrInvalidHold, r.name)
	}
	if err := checkLife(r.lifeOf(life)); err != nil {
		return err
	}
	if r.config.countDenied {
		return fmt.Errorf("%w: rule %q counts what is denied", limit.ErrInvalidHold, r.name)
	}
	return nil
}

func checkLife(life time.Duration) error {
	if life < shortestHold || life > longestHold {
		return fmt.Errorf("%w: it is to last %v, must be between %v and %v", limit.ErrInvalidHold, life, shortestHold, longestHold)
	}
	return nil
}

// textOf is a life as it is written in errors.
func textOf(life time.Duration) string {
	if life == LifeOfRule {
		return "the rule's HoldLife"
	}
	return life.String()
}
