package serve

import (
	"net"
	"syscall"
	"testing"
	"time"
)

// The kernel ends connections whose other side takes nothing.
func TestUserTimeout(t *testing.T) {
	const tcpUserTimeout, want = 0x12, 20_000 // the kernel's number of it, and ms
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	must(t, err)
	defer client.Close()
	accepted, err := newHandshakes(listener, time.Second).Accept()
	must(t, err)
	defer accepted.Close()
	raw, err := accepted.(*shaking).Conn.(syscall.Conn).SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) {
		milliseconds, err := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout)
		if err != nil || milliseconds != want {
			t.Errorf("%d ms, %v, want %d", milliseconds, err, want)
		}
	}))
}
