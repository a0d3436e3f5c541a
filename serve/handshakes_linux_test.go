package serve

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/serve/internal/transport"
)

// The kernel ends connections whose other side acknowledges nothing.
func TestUserTimeout(t *testing.T) {
	const tcpUserTimeout, want = 0x12, 20_000 // the kernel's option number, and ms
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	must(t, err)
	defer client.Close()
	accepted, err := newHandshakes(listener, time.Second).Accept()
	must(t, err)
	defer accepted.Close()
	mustEnd := func(what string, accepted net.Conn) {
		t.Helper()
		raw, err := accepted.(syscall.Conn).SyscallConn()
		must(t, err)
		must(t, raw.Control(func(fd uintptr) {
			milliseconds, err := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout)
			if err != nil || milliseconds != want {
				t.Errorf("%s: %d ms, %v, want %d", what, milliseconds, err, want)
			}
		}))
	}
	mustEnd("gRPC", accepted.(*shaking).Conn)

	server := startOn(t, "", configDir(t))
	for _, what := range []string{"http", "debug", "metrics"} {
		if _, ok := server.listeners[what].(transport.Ending); !ok {
			t.Errorf("%s: %T", what, server.listeners[what])
		}
	}
	other, err := net.Dial("tcp", listener.Addr().String())
	must(t, err)
	defer other.Close()
	accepted, err = transport.Ending{Listener: listener}.Accept()
	must(t, err)
	defer accepted.Close()
	mustEnd("HTTP", accepted)
}
