// Package connect lets the examples run without a Redis: they then count inside the process.
package connect

import (
	"github.com/tierlimit/tierlimit/embedded"
	"github.com/tierlimit/tierlimit/tiered"
)

// Limiter makes a limiter on the Redis at url (redis://host:port), or on none if that is "". Close it.
func Limiter(url string) (*tiered.Limiter, error) {
	if url == "" {
		return embedded.Open()
	}
	return tiered.OpenURL(url)
}
