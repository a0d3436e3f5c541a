package tiered

import (
	"sync/atomic"
	"unsafe"

	"github.com/tierlimit/tierlimit/limit"
)

const (
	tiers = limit.TierOverload + 1

	// stripes is the number of copies of each counter. If two cores add to one counter all the time, they
	// wait for each other longer than the rest of a decision in process takes.
	stripes   = 16
	cacheLine = 64
)

// outcome is the outcome of a request under one of its limits.
type outcome int

const (
	denied outcome = iota
	allowed
	heldBack // would not have denied, but another limit of the request did
	outcomes
)

// decisionCounts counts a rule's decisions by tier and outcome. The counts are spread
// over stripes of whole cache lines.
type decisionCounts [stripes]struct {
	of [tiers][outcomes]atomic.Uint64
	_  [(cacheLine - int(tiers)*int(outcomes)*8%cacheLine) % cacheLine]byte
}

// add counts a decision. It returns how many decisions of the same tier and outcome its stripe has
// counted.
func (c *decisionCounts) add(d *limit.Decision) uint64 {
	o := denied
	if d.Allowed {
		o = allowed
	} else if d.HeldBack {
		o = heldBack
	}
	return c[stripe()].of[d.Tier][o].Add(1)
}

// sum returns the number of decisions of a tier and outcome.
func (c *decisionCounts) sum(tier limit.Tier, o outcome) (n uint64) {
	for i := range c {
		n += c[i].of[tier][o].Load()
	}
	return n
}

// stripe returns mostly the same stripe for a goroutine, and mostly different ones for different
// goroutines: their stacks are at least 2 kB apart.
func stripe() uint64 {
	var onStack byte
	return uint64(uintptr(unsafe.Pointer(&onStack))>>11) * 0x9e3779b97f4a7c15 >> 60
}

// stats returns the decisions by tier.
func (c *decisionCounts) stats() []TierStats {
	if c == nil {
		return nil
	}
	s := make([]TierStats, tiers)
	for tier := range tiers {
		s[tier] = TierStats{Tier: tier, Allowed: c.sum(tier, allowed), Denied: c.sum(tier, denied), HeldBack: c.sum(tier, heldBack)}
	}
	return s
}
