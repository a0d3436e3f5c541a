package tiered

import "fmt"

// OutagePolicy says what a rule does while Redis cannot be reached.
type OutagePolicy uint8

const (
	// Approximate holds the limit with this instance's share of it: the limit
	// divided by the size of the fleet, counted from the instance's own grants. It
	// is the default.
	Approximate OutagePolicy = iota
	// Allow lets everything through: for limits that protect fairness, not safety.
	Allow
	// Deny lets nothing through: for limits that protect safety, such as login
	// attempts.
	Deny
)

// String returns "approximate", "allow" or "deny".
func (p OutagePolicy) String() string {
	switch p {
	case Approximate:
		return "approximate"
	case Allow:
		return "allow"
	case Deny:
		return "deny"
	}
	return fmt.Sprintf("OutagePolicy(%d)", p)
}
