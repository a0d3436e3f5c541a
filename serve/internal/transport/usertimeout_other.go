//go:build !linux

package transport

import (
	"net"
	"time"
)

// setUserTimeout does nothing: gRPC's pings find out as well, later.
func setUserTimeout(net.Conn, time.Duration) {}
