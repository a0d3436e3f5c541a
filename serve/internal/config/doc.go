// Package config reads the configuration of a rate limit service from files in envoyproxy/ratelimit's form, and finds
// the limit that applies to a descriptor.
//
// Every legal file of envoyproxy/ratelimit is legal here and means the same. This service adds a few fields to
// rate_limit: algorithm, need, debt, outage, lease, burst, unit_multiplier and window. Errors give file, line and
// column. What envoyproxy/ratelimit accepts and ignores is accepted with a warning.
package config
