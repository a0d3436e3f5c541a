package outage

import "fmt"

// State says who makes decisions at the moment.
type State uint8

const (
	// Healthy means that Redis decides.
	Healthy State = iota
	// Outage means that Redis counts as lost, and the rules' outage policies decide.
	Outage
	// Settling means that Redis does not know of all grants, because it is just back, has lost
	// data, or often misses the deadline. A request must fit both in Redis and in this instance's
	// share of the limit; but for rules of policy Allow, Redis decides alone.
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

// worse returns the worse of two states, in the order healthy, settling, outage.
func worse(a, b State) State {
	if a == Outage || b == Outage {
		return Outage
	}
	return max(a, b)
}
