// Package config reads the configuration of a rate limit service, in the form of
// envoyproxy/ratelimit's files, and finds the limit that a descriptor is held to.
//
// What is legal there is legal here and means the same; what this service adds is a few fields
// of a rate_limit (algorithm, need, outage, lease, burst, unit_multiplier, window). A mistake is
// told with file, line and column. What is accepted there and means nothing is accepted with a
// warning.
package config
