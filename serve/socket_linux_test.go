package serve

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A socket at which a process listens is left alone, even if the process is so busy that it cannot be connected to.
func TestSocketOfABusyProcessIsLeft(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	must(t, err)
	defer syscall.Close(fd)
	must(t, syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}))
	must(t, syscall.Listen(fd, 0)) // a queue of one connection, which nobody takes
	for {
		connection, err := net.Dial("unix", path)
		if err != nil {
			break
		}
		defer connection.Close()
	}
	removeStaleSocket(path)
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}
