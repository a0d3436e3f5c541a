package quietconn

import (
	"fmt"
	"io"
	"net"
	"sync/atomic"
)

// ErrClosedIdle is the error of a write that found the connection closed by the server. No byte of the command that
// the write belongs to was written.
var ErrClosedIdle = fmt.Errorf("the server has closed the connection while it was idle: %w", io.EOF)

// secureConn is a client's connection with TLS. Before the first write after an answer it checks whether the server
// has closed the connection. Without TLS, go-redis makes this check when it takes a connection out of its pool, and
// dials another one. With TLS, go-redis would send a command, read an end of file, and not know whether the command
// has been run.
//
// It is not a [syscall.Conn]: the bytes of the socket are not those of Redis's protocol. But go-redis finds the
// socket by NetConn, and reads what has arrived before it sends the first command. If the server refuses a client's
// certificate, that read reports the refusal, whereas a write would merely fail.
type secureConn struct {
	net.Conn // with TLS
	below    net.Conn
	answered atomic.Bool // something was read since the last write
}

// NetConn returns the connection below, as the NetConn method of a [tls.Conn] does.
func (c *secureConn) NetConn() net.Conn { return c.below }

func (c *secureConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.answered.Store(true)
	}
	return n, err
}

func (c *secureConn) Write(p []byte) (int, error) {
	if c.answered.Swap(false) && isClosed(c.below) {
		return 0, ErrClosedIdle
	}
	return c.Conn.Write(p)
}
