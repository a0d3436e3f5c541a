//go:build !linux

package serve

import (
	"net"
	"time"
)

// setUserTimeout does nothing: gRPC's pings find out as well, later.
func setUserTimeout(net.Conn, time.Duration) {}
