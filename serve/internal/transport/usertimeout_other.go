//go:build !linux

package transport

import (
	"net"
	"time"
)

// setUserTimeout does nothing. For gRPC clients, pings detect a dead connection too, but later.
func setUserTimeout(net.Conn, time.Duration) {}
