//go:build !386

package quietconn

import (
	"net"
	"syscall"
	"unsafe"
)

// established is the state of a TCP connection that neither side has closed.
const established = 1

// isClosed reports whether the other side of a TCP connection has closed it. It makes the system call without
// telling the scheduler, because the call does not block.
func isClosed(c net.Conn) (closed bool) {
	raw, err := c.(syscall.Conn).SyscallConn() // all connections that package net dials have a socket
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		var state uint8 // the first byte of the system's answer
		size := uint32(unsafe.Sizeof(state))
		_, _, errno := syscall.RawSyscall6(syscall.SYS_GETSOCKOPT, fd, syscall.IPPROTO_TCP, syscall.TCP_INFO,
			uintptr(unsafe.Pointer(&state)), uintptr(unsafe.Pointer(&size)), 0)
		closed = errno == 0 && state != established
	})
	return closed
}
