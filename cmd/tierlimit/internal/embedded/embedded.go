// Package embedded runs a Redis stand-in inside the process (miniredis), so that
// the command can be tried on a machine with nothing but Go.
package embedded

import (
	"fmt"

	"github.com/alicebob/miniredis/v2"
)

// Start starts it on a free loopback port and returns its URL, and a function
// that stops it.
func Start() (url string, stop func(), err error) {
	server := miniredis.NewMiniRedis()
	if err := server.StartAddr("127.0.0.1:0"); err != nil {
		return "", nil, fmt.Errorf("starting the embedded Redis: %w", err)
	}
	return "redis://" + server.Addr(), server.Close, nil
}
