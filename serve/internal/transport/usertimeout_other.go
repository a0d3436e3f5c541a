//go:build !linux

package transport

import (
	"net"
	"time"
)

// setUserTimeout does nothing. Of gRPC's clients pings find out as well, later.
func setUserTimeout(net.Conn, time.Duration) {}
