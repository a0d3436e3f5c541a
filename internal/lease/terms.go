package lease

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
)

// Terms are the terms on which units of a rule's keys are leased.
type Terms struct {
	Most    int64 // largest number of units of a key on lease, over the fleet
	Reserve int64 // units that stay free
	Life    time.Duration
	Salt    uint64 // differs for each rule and limit
}

// The longest life of a lease, and the number of lives that fit into a window.
const (
	Longest   = time.Second
	PerWindow = 8
)

const (
	shortestWindow = 100 * time.Millisecond // shorter windows have no leases
	// Drift determines by how much a process counts its leases as shorter than Redis does: by 1/Drift of
	// their life. The reason is that clocks do not run at the same speed. A quartz clock is off by a
	// tenth of that.
	Drift = 1000
)

// NewTerms returns the terms on which a limit is leased, or nil if it is not leased, and the limit that
// Redis enforces. At most the given percentage of the limit is on lease. within says that the limit must
// hold including leases.
//
// Law 1. Let an algorithm grant at most B units in any window, and let at most L units of a key be on
// lease at any moment. Take any window. A unit that is spent in the window was either charged in the
// window, or was charged before and on lease when the window began. There are at most B units of the
// first kind: refunded units were not spent, and a refund never grants more than if its charge had not
// been made. There are at most L units of the second kind. So the window holds at most B + L units. L is
// kept because a lease counts in Redis from its charge on for its whole life, and the process counts that
// life from before it asked. Fixed windows do not add L: a lease ends with its window, so a unit is spent
// in the window in which it was charged.
func NewTerms(h local.Hasher, rule string, lim limit.Limit, a limit.Algorithm, percent int, within bool) (*Terms, limit.Limit) {
	t := &Terms{Most: lim.Quota() * int64(percent) / 100, Life: min(Longest, lim.Window()/PerWindow)}
	if t.Most < 1 || lim.Window() < shortestWindow {
		return nil, lim
	}
	inRedis := lim
	if within && !a.Same(limit.FixedWindow()) {
		inRedis = limit.Per(lim.Quota()-t.Most, lim.Window())
		if a.Same(limit.GCRA()) {
			inRedis = inRedis.WithBurst(min(lim.Burst(), largestBurst(inRedis)))
		}
	}
	t.Life = t.Life.Truncate(time.Microsecond)
	t.Reserve = (a.Capacity(inRedis)*int64(percent) + 99) / 100
	t.Salt = h.Salt(fmt.Sprint("lease ", rule, " ", lim, " ", a, " ", percent, within))
	return t, inRedis
}

// largestBurst returns the largest burst that a limit may have. Its units return within limit.MaxWindow.
func largestBurst(lim limit.Limit) int64 {
	hi, lo := bits.Mul64(uint64(lim.Quota()), uint64(limit.MaxWindow))
	if window := uint64(lim.Window()); hi < window {
		most, _ := bits.Div64(hi, lo, window)
		return int64(min(most, limit.MaxQuota))
	}
	return limit.MaxQuota
}
