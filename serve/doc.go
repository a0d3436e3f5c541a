// Package serve is a rate limit service for Envoy and for every other client of its protocol
// (envoy.service.ratelimit.v3.RateLimitService). Configuration, protocol, ports and environment variables are those
// of envoyproxy/ratelimit; tierlimit decides the limits.
//
// The command is tierlimit-serve. docs/serve.md describes how to move to it from envoyproxy/ratelimit.
package serve
