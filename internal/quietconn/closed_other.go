//go:build !linux || 386

package quietconn

import "net"

// isClosed cannot find out, and reports false.
func isClosed(net.Conn) bool { return false }
