package tiered

import "github.com/tierlimit/tierlimit/internal/outage"

// OutagePolicy says what a rule does while Redis cannot be reached. Its String method returns
// "approximate", "allow" or "deny".
type OutagePolicy = outage.Policy

const (
	// Approximate enforces this instance's share of the limit, computed from the size of the fleet
	// and the instance's own grants. It is the default.
	Approximate = outage.Approximate
	// Allow lets everything through. It is for limits that protect fairness, not safety.
	Allow = outage.Allow
	// Deny lets nothing through. It is for limits that protect safety, such as on login attempts.
	Deny = outage.Deny
)
