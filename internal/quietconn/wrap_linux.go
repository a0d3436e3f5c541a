//go:build linux && !race && !386

package quietconn

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// Client makes the client's side of a connection quiet. What is read from it answers what was written, and may come
// soon. A connection that is not a socket of the operating system stays as it is.
func Client(c net.Conn) net.Conn { return wrap(c, true) }

// Server makes the server's side of a connection quiet.
func Server(c net.Conn) net.Conn { return wrap(c, false) }

func wrap(c net.Conn, answers bool) net.Conn {
	switch c.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		return c
	}
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return c
	}
	q := &conn{Conn: c, raw: raw, answers: answers}
	q.reads.trap, q.reads.try = syscall.SYS_RECVFROM, q.reads.attempt
	q.look = func(fd uintptr) bool { q.reads.transfer.attempt(fd); return true }
	q.writes.trap, q.writes.try = syscall.SYS_SENDTO, q.writes.attempt
	return q
}

// conn is a quiet connection.
type conn struct {
	net.Conn
	raw    syscall.RawConn
	reads  poller
	look   func(fd uintptr) bool // one attempt to read
	writes transfer

	answers bool        // what is read answers what was written, and may come soon
	asked   atomic.Bool // something was written since the last read began; only if answers is set
}

// transfer is a system call that reads or writes, and is repeated until it need not wait.
type transfer struct {
	mu   sync.Mutex // held by one call at a time; guards the rest
	trap uintptr    // the number of the system call
	try  func(fd uintptr) (done bool)

	data   []byte
	waited bool // an attempt found that the call must wait
	n      int
	errno  syscall.Errno
}

// attempt makes the system call once. It returns false if there is nothing to read, or no room for the data to
// write; it is called again when there may be.
//
// MSG_DONTWAIT keeps the call from waiting even if the socket was set to block (for example by [os.File.Fd] of a
// copy). The scheduler is not notified of the call, and if the call waited, the scheduler could not even stop the
// world.
func (t *transfer) attempt(fd uintptr) (done bool) {
	notify := t.waited && theGuard.begin()
	for {
		var n uintptr
		var errno syscall.Errno
		if notify {
			n, _, errno = syscall.Syscall6(t.trap, fd, uintptr(unsafe.Pointer(&t.data[0])), uintptr(len(t.data)), syscall.MSG_DONTWAIT, 0, 0)
		} else {
			n, _, errno = syscall.RawSyscall6(t.trap, fd, uintptr(unsafe.Pointer(&t.data[0])), uintptr(len(t.data)), syscall.MSG_DONTWAIT, 0, 0)
		}
		switch errno {
		case syscall.EINTR:
		case syscall.EAGAIN:
			t.waited, t.errno = true, errno
			return false
		default:
			t.n, t.errno = int(n), errno
			return true
		}
	}
}

// begin prepares attempts on data, which is not empty.
func (t *transfer) begin(data []byte) { t.data, t.waited = data, false }

// end returns the result of the last attempt, or the poller's error.
func (t *transfer) end(name string, err error) (n int, _ error) {
	t.data = nil
	switch {
	case err != nil:
		return 0, err
	case t.errno != 0:
		return 0, os.NewSyscallError(name, t.errno)
	}
	return t.n, nil
}

func (c *conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return c.Conn.Read(p)
	}
	c.reads.mu.Lock()
	defer c.reads.mu.Unlock()
	c.reads.begin(p)
	err := c.read()
	if c.answers && errors.Is(err, os.ErrDeadlineExceeded) && c.hasCome() {
		err = nil
	}
	n, err := c.reads.end("read", err)
	if err != nil {
		return 0, c.failed("read", err)
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// hasCome attempts once more to read, although the deadline has passed, and reports whether there was an answer. If this
// process stood still, the answer may have come in time: when the process goes on, Go ends the wait because of the
// deadline before it looks at the network.
func (c *conn) hasCome() bool {
	c.reads.errno = syscall.EAGAIN
	err := c.raw.Control(func(fd uintptr) { c.reads.transfer.attempt(fd) })
	return err == nil && c.reads.errno == 0
}

func (c *conn) Write(p []byte) (written int, err error) {
	if len(p) == 0 {
		return c.Conn.Write(p)
	}
	c.writes.mu.Lock()
	defer c.writes.mu.Unlock()
	c.asked.Store(c.answers)
	for written < len(p) {
		c.writes.begin(p[written:])
		n, err := c.writes.end("write", c.raw.Write(c.writes.try))
		if err != nil {
			return written, c.failed("write", err)
		}
		written += n
	}
	return written, nil
}

// failed returns an error as the connection itself would return it.
func (c *conn) failed(op string, err error) error {
	if ofPoller, ok := err.(*net.OpError); ok {
		ofPoller.Op = op // instead of "raw-read" or "raw-write"
		return ofPoller
	}
	return &net.OpError{Op: op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// SyscallConn returns the socket, by which go-redis checks whether the server has closed the connection each time it
// takes the connection out of its pool.
func (c *conn) SyscallConn() (syscall.RawConn, error) { return peeked{c.raw}, nil }

// peeked is a socket that is only read if there is something to read: data, the end of the data, or an error. It
// finds this out without telling the scheduler, because that does not block. Otherwise Read returns without calling
// the function.
type peeked struct{ syscall.RawConn }

func (p peeked) Read(read func(fd uintptr) (done bool)) error {
	empty := false
	err := p.Control(func(fd uintptr) {
		var b [1]byte
		_, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&b[0])), 1, syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0)
		empty = errno == syscall.EAGAIN
	})
	if empty || err != nil {
		return err
	}
	return p.RawConn.Read(read)
}
