//go:build !386

package quietconn

import (
	"crypto/tls"
	"errors"
	"io"
	"testing"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// A connection with TLS that the server has closed refuses to write the next question. It does not refuse the rest
// of a question that was begun before, and a connection that has not answered yet does not refuse either.
func TestSecureConnectionsThatTheServerCloses(t *testing.T) {
	server := redistest.StartTLS(t)
	config := &tls.Config{RootCAs: server.CA}
	ask := func(c *secureConn) error {
		if _, err := c.Write([]byte("PI")); err != nil {
			return err
		}
		if _, err := c.Write([]byte("NG\r\n")); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, len("+PONG\r\n")))
		return err
	}
	connect := func() *secureConn { return dialTo(t, "tcp", server.TLSAddr, config).(*secureConn) }

	idle, busy, fresh := connect(), connect(), connect()
	for _, c := range []*secureConn{idle, busy} {
		for range 2 {
			if err := ask(c); err != nil {
				t.Fatal(err)
			}
		}
		if isClosed(c.below) {
			t.Fatal("an open connection counts as closed")
		}
	}
	if _, err := busy.Write([]byte("PI")); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	for _, c := range []*secureConn{idle, busy, fresh} {
		redistest.Eventually(t, "the connection is closed", func() bool { return isClosed(c.below) })
	}
	if n, err := idle.Write([]byte("PING\r\n")); n != 0 || err != ErrClosedIdle {
		t.Errorf("%d bytes of a new question were written, %v", n, err)
	}
	for name, c := range map[string]*secureConn{"a question that was begun": busy, "a connection without answers": fresh} {
		if _, err := c.Write([]byte("NG\r\n")); errors.Is(err, ErrClosedIdle) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
