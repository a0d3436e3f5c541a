package transport

import (
	"net"
	"syscall"
	"time"
)

// tcpUserTimeout is the kernel's TCP_USER_TIMEOUT.
const tcpUserTimeout = 0x12

// setUserTimeout makes the kernel end a connection whose other side acknowledges nothing for the given time. gRPC
// does so only for the kernel's own connections, not for those that [Listener] returns.
func setUserTimeout(c net.Conn, within time.Duration) {
	conn, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	if raw, err := conn.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(within.Milliseconds()))
		})
	}
}
