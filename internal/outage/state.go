package outage

import "fmt"

// State says who decides at the moment.
type State uint8

const (
	// Healthy: Redis decides.
	Healthy State = iota
	// Outage: Redis counts as lost, and decisions are made by the rules' outage
	// policies.
	Outage
	// Settling: Redis is back, has lost its memory, or often misses the deadline, and does
	// not know of all that was granted. A request needs both its yes and that of this
	// instance's share of the limit; but for rules of policy Allow, where Redis decides.
	Settling
)

// String returns "healthy", "outage" or "settling".
func (s State) String() string {
	switch s {
	case Healthy:
		return "healthy"
	case Outage:
		return "outage"
	case Settling:
		return "settling"
	}
	return fmt.Sprintf("State(%d)", s)
}

// worse is the worse of two states: from healthy to settling to outage.
func worse(a, b State) State {
	if a == Outage || b == Outage {
		return Outage
	}
	return max(a, b)
}
