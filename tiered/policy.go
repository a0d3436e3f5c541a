package tiered

import "github.com/tierlimit/tierlimit/internal/outage"

// OutagePolicy says what a rule does while Redis cannot be reached. Its String method returns
// "approximate", "allow" or "deny".
type OutagePolicy = outage.Policy

const (
	// Approximate holds the limit with this instance's share of it: the limit
	// divided by the size of the fleet, counted from the instance's own grants. It
	// is the default.
	Approximate = outage.Approximate
	// Allow lets everything through: for limits that protect fairness, not safety.
	Allow = outage.Allow
	// Deny lets nothing through: for limits that protect safety, such as login
	// attempts.
	Deny = outage.Deny
)
