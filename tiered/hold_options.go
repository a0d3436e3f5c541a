package tiered

import (
	"fmt"
	"time"

	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// LifeOfRule stands for the [HoldLife] of the rule. It can be passed as the life to [Rule.Hold],
// [Rule.HoldUpTo], [Limiter.HoldAll] and [Hold.Extend], and as the Hold of a [Request]. If the rule has
// no HoldLife, the error wraps [limit.ErrInvalidHold]. Do not use LifeOfRule in arithmetic;
// [Rule.HoldLife] returns the duration.
const LifeOfRule time.Duration = -1

const (
	shortestHold = time.Millisecond
	longestHold  = lua.LongestHold * time.Microsecond
)

// HoldLife sets how long a hold of the rule lasts if the caller passes [LifeOfRule], 1 ms to a day;
// there is no default. With it, the duration can be configured beside the limit, for instance in a
// rules file, instead of in the program.
func HoldLife(d time.Duration) RuleOption {
	return option.Set(func(c *ruleConfig) { c.holdLife = d },
		d >= shortestHold && d <= longestHold, "HoldLife of %v, must be between %v and %v", d, shortestHold, longestHold)
}

// HoldLife returns how long a hold lasts if the caller passes [LifeOfRule], or 0 if that was not set.
func (r *Rule) HoldLife() time.Duration { return r.config.holdLife }

// lifeOf returns how long a hold lasts if the caller passed the given life.
func (r *Rule) lifeOf(given time.Duration) time.Duration {
	if given == LifeOfRule {
		return r.config.holdLife
	}
	return given
}

// checkHold returns an error if the rule cannot hold units for the given life.
func (r *Rule) checkHold(life time.Duration) error {
	if life == LifeOfRule && r.config.holdLife == 0 {
		return fmt.Errorf("%w: the call passes LifeOfRule, but rule %q has no HoldLife", limit.ErrInvalidHold, r.name)
	}
	if err := checkLife(r.lifeOf(life)); err != nil {
		return err
	}
	if r.config.countDenied {
		return fmt.Errorf("%w: rule %q counts denied requests (CountDenied), so it cannot hold units", limit.ErrInvalidHold, r.name)
	}
	return nil
}

func checkLife(life time.Duration) error {
	if life < shortestHold || life > longestHold {
		return fmt.Errorf("%w: its life is %v, must be between %v and %v", limit.ErrInvalidHold, life, shortestHold, longestHold)
	}
	return nil
}

// textOf returns a life as it is shown in errors.
func textOf(life time.Duration) string {
	if life == LifeOfRule {
		return "the rule's HoldLife"
	}
	return life.String()
}

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
	if p > GiveBack {
		return fmt.Sprintf("UnsettledPolicy(%d)", p)
	}
	return [...]string{Keep: "keep", GiveBack: "give back"}[p]
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
