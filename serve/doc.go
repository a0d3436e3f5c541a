// Package serve is a rate limit service for Envoy, and for all who speak its protocol
// (envoy.service.ratelimit.v3.RateLimitService): the configuration, protocol, ports and
// environment variables are those of envoyproxy/ratelimit, the limits those of tierlimit.
//
// The command is tierlimit-serve; docs/serve.md says how to move to it.
package serve
