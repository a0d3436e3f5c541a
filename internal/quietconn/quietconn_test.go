package quietconn

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// listen returns the address of a server that calls serve with each connection.
func listen(t *testing.T, network, addr string, serve func(net.Conn)) net.Addr {
	t.Helper()
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		var accepted []net.Conn // the garbage collector would close connections that serve does not keep
		defer func() {
			for _, c := range accepted {
				_ = c.Close()
			}
		}()
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted = append(accepted, c)
			go serve(c)
		}
	}()
	return l.Addr()
}

func dial(t *testing.T, addr net.Addr, config *tls.Config) net.Conn {
	t.Helper()
	return dialTo(t, addr.Network(), addr.String(), config)
}

func dialTo(t *testing.T, network, addr string, config *tls.Config) net.Conn {
	t.Helper()
	c, err := Dialer(time.Minute, config)(t.Context(), network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func echo(c net.Conn) {
	_, _ = io.Copy(c, c)
	_ = c.Close()
}

// quietly returns its argument. It fails the test if that is not a quiet connection on a system that has them.
func quietly(t *testing.T, c net.Conn) net.Conn {
	t.Helper()
	if _, ordinary := c.(*net.TCPConn); quiets && ordinary {
		t.Fatalf("%T is not quiet", c)
	}
	return c
}

// All bytes that are written arrive, whatever their number, even if neither side's buffers can hold them.
func TestBytesArrive(t *testing.T) {
	for network, addr := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "socket")} {
		t.Run(network, func(t *testing.T) {
			c := quietly(t, dial(t, listen(t, network, addr, echo), nil))
			for _, size := range []int{1, 100, 1 << 12, 1 << 16, 1<<23 + 1} {
				sent, got := make([]byte, size), make([]byte, size)
				_, _ = rand.Read(sent)
				written := make(chan error, 1)
				go func() {
					n, err := c.Write(sent)
					if err == nil && n != size {
						err = io.ErrShortWrite
					}
					written <- err
				}()
				if _, err := io.ReadFull(c, got); err != nil {
					t.Fatal(err)
				}
				if err := <-written; err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(sent, got) {
					t.Fatalf("%d bytes came back changed", size)
				}
			}
		})
	}
}

func TestNothingIsReadOrWrittenAtOnce(t *testing.T) {
	c := quietly(t, dial(t, listen(t, "tcp", "127.0.0.1:0", echo), nil))
	for name, f := range map[string]func([]byte) (int, error){"Read": c.Read, "Write": c.Write} {
		if n, err := f(nil); n != 0 || err != nil {
			t.Errorf("%s of nothing: %d, %v", name, n, err)
		}
	}
}

// The errors are those of an ordinary connection, including their texts.
func TestErrors(t *testing.T) {
	reset := func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1))
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
	hangUp := func(c net.Conn) { _ = c.Close() }
	silent := func(net.Conn) {}
	buffer := make([]byte, 1<<20)
	for _, test := range []struct {
		name  string
		serve func(net.Conn)
		do    func(c net.Conn) error
		want  error
	}{
		{"end of the stream", hangUp, func(c net.Conn) error { _, err := c.Read(buffer); return err }, io.EOF},
		{"reset by the server", reset, func(c net.Conn) error {
			_, _ = c.Write([]byte("x"))
			_, err := c.Read(buffer)
			return err
		}, syscall.ECONNRESET},
		{"deadline while reading", silent, func(c net.Conn) error {
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			_, err := c.Read(buffer)
			return err
		}, os.ErrDeadlineExceeded},
		{"deadline passed before reading", silent, func(c net.Conn) error {
			_ = c.SetDeadline(time.Unix(1, 0))
			_, err := c.Read(buffer)
			return err
		}, os.ErrDeadlineExceeded},
		{"deadline while writing", silent, func(c net.Conn) error {
			_ = c.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
			for {
				if _, err := c.Write(buffer); err != nil {
					return err
				}
			}
		}, os.ErrDeadlineExceeded},
		{"closed while reading", silent, func(c net.Conn) error {
			result := make(chan error)
			go func() { _, err := c.Read(buffer); result <- err }()
			_ = c.Close()
			return <-result
		}, net.ErrClosed},
		{"closed before nothing is read", silent, func(c net.Conn) error {
			_ = c.Close()
			_, err := c.Read(nil)
			return err
		}, net.ErrClosed},
		{"closed before nothing is written", silent, func(c net.Conn) error {
			_ = c.Close()
			_, err := c.Write(nil)
			return err
		}, net.ErrClosed},
		{"closed before writing", silent, func(c net.Conn) error {
			_ = c.Close()
			_, err := c.Write(buffer)
			return err
		}, net.ErrClosed},
	} {
		t.Run(test.name, func(t *testing.T) {
			addr := listen(t, "tcp", "127.0.0.1:0", test.serve)
			err := test.do(quietly(t, dial(t, addr, nil)))
			ordinary, dialErr := net.Dial("tcp", addr.String())
			if dialErr != nil {
				t.Fatal(dialErr)
			}
			defer ordinary.Close()
			want := test.do(ordinary)
			if !errors.Is(err, test.want) || !errors.Is(want, test.want) {
				t.Fatalf("error %v, of an ordinary connection %v; want %v", err, want, test.want)
			}
			var op, wantOp *net.OpError
			if errors.As(want, &wantOp) != errors.As(err, &op) {
				t.Fatalf("error %#v, of an ordinary connection %#v", err, want)
			}
			if op != nil && (op.Op != wantOp.Op || op.Net != wantOp.Net || op.Timeout() != wantOp.Timeout() ||
				op.Addr.String() != wantOp.Addr.String() || op.Err.Error() != wantOp.Err.Error()) {
				t.Errorf("error %#v, of an ordinary connection %#v", op, wantOp)
			}
		})
	}
}

// One goroutine may read while another writes, and several goroutines may write at the same time.
func TestConcurrentUse(t *testing.T) {
	const writers, each, size = 4, 200, 1000
	c := quietly(t, dial(t, listen(t, "tcp", "127.0.0.1:0", echo), nil))
	for w := range writers {
		go func() {
			for range each {
				_, _ = c.Write(bytes.Repeat([]byte{byte(w)}, size))
			}
		}()
	}
	var counts [writers]int
	got := make([]byte, size)
	for range writers * each {
		if _, err := io.ReadFull(c, got); err != nil {
			t.Fatal(err)
		}
		if bytes.Count(got, got[:1]) != size {
			t.Fatal("two writes were mixed")
		}
		counts[got[0]]++
	}
	for w, n := range counts {
		if n != each {
			t.Errorf("%d writes of writer %d arrived, want %d", n, w, each)
		}
	}
}

func TestTLS(t *testing.T) {
	server := redistest.StartTLS(t)
	ping := func(addr string, config *tls.Config) (net.Conn, error) {
		c, err := Dialer(time.Minute, config)(t.Context(), "tcp", addr)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := c.Write([]byte("PING\r\n")); err != nil {
			return nil, err
		}
		got := make([]byte, len("+PONG\r\n"))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != "+PONG\r\n" {
			return nil, fmt.Errorf("got %q, %w", got, err)
		}
		return c, nil
	}
	for name, config := range map[string]*tls.Config{
		"the name is that of the address": {RootCAs: server.CA},
		"the name is given":               {RootCAs: server.CA, ServerName: server.Host},
		"nothing is checked":              {InsecureSkipVerify: true},
	} {
		c, err := ping(server.TLSAddr, config)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		quietly(t, c.(*secureConn).Conn.(*tls.Conn).NetConn())
		if config.ServerName != "" && config.ServerName != server.Host {
			t.Errorf("%s: the configuration was changed", name)
		}
	}
	for name, config := range map[string]*tls.Config{
		"nobody vouches for it": {},
		"that of another name":  {RootCAs: server.CA, ServerName: "other.example"},
	} {
		var refused *tls.CertificateVerificationError
		if _, err := ping(server.TLSAddr, config); !errors.As(err, &refused) {
			t.Errorf("certificate, %s: %v", name, err)
		}
	}
}

// A server is told the name by which it is asked for, as with package tls, even if its certificate is not checked:
// a proxy in front of it may choose by the name.
func TestServerIsToldItsName(t *testing.T) {
	told := make(chan string, 1)
	refuse := &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		told <- hello.ServerName
		return nil, errors.New("that was all")
	}}
	addr := listen(t, "tcp", "127.0.0.1:0", func(c net.Conn) {
		_ = tls.Server(c, refuse).Handshake()
		_ = c.Close()
	})
	_, port, _ := net.SplitHostPort(addr.String())
	for _, config := range []*tls.Config{{}, {InsecureSkipVerify: true}, {ServerName: "given.example"}, {ServerName: "given.example", InsecureSkipVerify: true}} {
		for _, host := range []string{"localhost", "127.0.0.1"} {
			to := net.JoinHostPort(host, port)
			if c, err := (&tls.Dialer{Config: config.Clone()}).DialContext(t.Context(), "tcp", to); err == nil {
				_ = c.Close()
				t.Fatal("the handshake did not fail")
			}
			want := <-told
			if _, err := Dialer(time.Minute, config)(t.Context(), "tcp", to); err == nil {
				t.Fatal("the handshake did not fail")
			}
			if name := <-told; name != want {
				t.Errorf("%s, with the name %q, checked %t: the server was told %q, want %q", host, config.ServerName, !config.InsecureSkipVerify, name, want)
			}
		}
	}
}

// A server that accepts a connection and says nothing holds up the dialer no longer than the time for connecting,
// and no longer than the context.
func TestConnectingIsBounded(t *testing.T) {
	addr := listen(t, "tcp", "127.0.0.1:0", func(net.Conn) {})
	if _, err := Dialer(10*time.Millisecond, &tls.Config{})(t.Context(), "tcp", addr.String()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a silent server: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := Dialer(0, &tls.Config{})(ctx, "tcp", addr.String()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a silent server, and no time of its own: %v", err)
	}
}

// Writing a message and reading its answer allocates nothing.
func TestAllocations(t *testing.T) {
	c := quietly(t, dial(t, listen(t, "tcp", "127.0.0.1:0", echo), nil))
	message := make([]byte, 64)
	if n := testing.AllocsPerRun(200, func() {
		if _, err := c.Write(message); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, message); err != nil {
			t.Fatal(err)
		}
	}); n > 0.5 {
		t.Errorf("%v allocations for each message and its answer", n)
	}
}

func TestOtherConnectionsStayAsTheyAre(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if Server(a) != a {
		t.Error("a pipe was wrapped, which has no socket")
	}
}
