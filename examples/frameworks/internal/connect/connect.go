// Package connect lets the examples run without a Redis. They then count inside the process.
package connect

import (
	"github.com/tierlimit/tierlimit/embedded"
	"github.com/tierlimit/tierlimit/tiered"
)

// Limiter returns a limiter on the Redis at url (redis://host:port), or one that needs no Redis if url
// is "". The caller must close it.
func Limiter(url string) (*tiered.Limiter, error) {
	if url == "" {
		return embedded.Open()
	}
	return tiered.OpenURL(url)
}
