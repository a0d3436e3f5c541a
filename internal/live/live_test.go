package live

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

func get(t *testing.T, url string) (*http.Response, func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return response, func() { cancel(); response.Body.Close() }
}

func TestEvents(t *testing.T) {
	var version, rendered atomic.Int64
	version.Store(1)
	done := make(chan struct{})
	streams := NewStreams(2, time.Millisecond)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		streams.Serve(w, r, done, func(w io.Writer) error {
			rendered.Add(1)
			_, err := fmt.Fprintf(w, "<p>\r\nevent: forged\r\rdata %d", version.Load())
			return err
		})
	}))
	defer server.Close()

	first, leave := get(t, server.URL)
	defer leave()
	if first.Header.Get("Content-Type") != "text/event-stream" || first.Header.Get("X-Accel-Buffering") != "no" {
		t.Errorf("%v", first.Header)
	}
	lines := bufio.NewScanner(first.Body)
	for n := range int64(3) {
		for _, want := range []string{"data: <p>", "data: event: forged", "data: ", fmt.Sprintf("data: data %d", n+1), ""} {
			if !lines.Scan() || lines.Text() != want {
				t.Fatalf("%q, want %q", lines.Text(), want)
			}
		}
		before := rendered.Load()
		redistest.Eventually(t, "an event could have come of the same again", func() bool { return rendered.Load() > before+5 })
		version.Add(1)
	}

	second, leaveSecond := get(t, server.URL)
	if third, leaveThird := get(t, server.URL); third.StatusCode != http.StatusServiceUnavailable || second.StatusCode != http.StatusOK {
		t.Errorf("a third of two: %v", third.Status)
	} else {
		leaveThird()
	}
	leaveSecond()
	redistest.Eventually(t, "the place is free again", func() bool {
		again, leaveAgain := get(t, server.URL)
		defer leaveAgain()
		return again.StatusCode == http.StatusOK
	})

	close(done)
	for lines.Scan() {
	}
	if err := lines.Err(); err != nil {
		t.Errorf("the stream ends with %v", err)
	}
}

// A HEAD request is answered at once, and takes no place.
func TestHeadOfEvents(t *testing.T) {
	streams := NewStreams(1, time.Hour)
	w := httptest.NewRecorder()
	ctx, leave := context.WithTimeout(t.Context(), 10*time.Second)
	defer leave()
	streams.Serve(w, httptest.NewRequestWithContext(ctx, http.MethodHead, "/events", nil), nil, func(io.Writer) error { return nil })
	if got := w.Header().Get("Content-Type"); ctx.Err() != nil || w.Code != http.StatusOK || got != "text/event-stream" {
		t.Errorf("%v: %d, %q", ctx.Err(), w.Code, got)
	}
}

// A client that does not read is disconnected, and its events are not buffered.
func TestSlowClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		streams := NewStreams(1, time.Second)
		rendered := 0
		client, conn := net.Pipe() // nothing in between can buffer data
		defer client.Close()
		ended := make(chan struct{})
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(ended)
			streams.Serve(w, r, nil, func(w io.Writer) error {
				rendered++
				_, err := fmt.Fprint(w, rendered, strings.Repeat("x", 100_000))
				return err
			})
		})}
		listener := &oneConn{conn: conn, closed: make(chan struct{})}
		go func() { _ = server.Serve(listener) }()
		if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		started := time.Now()
		<-ended
		if took := time.Since(started); took < patience || took > patience+time.Second || rendered > 2 {
			t.Errorf("hung up after %v and %d events", took, rendered)
		}
		_ = server.Close()
	})
}

// A stream on which nothing happens stays open. Over HTTP/2, a deadline for writing also ends streams that write nothing.
func TestQuietStreams(t *testing.T) {
	for _, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
		synctest.Test(t, func(t *testing.T) {
			streams := NewStreams(1, time.Second)
			client, conn := net.Pipe()
			protocols := new(http.Protocols)
			protocols.SetHTTP1(version == "HTTP/1.1")
			protocols.SetUnencryptedHTTP2(version == "HTTP/2.0")
			server := &http.Server{WriteTimeout: time.Second, Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				streams.Serve(w, r, nil, func(w io.Writer) error {
					_, err := io.WriteString(w, "the same")
					return err
				})
			})}
			listener := &oneConn{conn: conn, closed: make(chan struct{})}
			go func() { _ = server.Serve(listener) }()
			transport := &http.Transport{Protocols: protocols, DialContext: func(context.Context, string, string) (net.Conn, error) { return client, nil }}
			response, err := (&http.Client{Transport: transport}).Get("http://h/")
			if err != nil {
				t.Fatal(err)
			}
			if response.Proto != version {
				t.Errorf("%s, want %s", response.Proto, version)
			}
			want := "data: the same\n\n:\n\n:\n\n"
			got := make([]byte, len(want))
			if n, err := io.ReadFull(response.Body, got); err != nil || string(got) != want {
				t.Errorf("%s: %q, %v", version, got[:n], err)
			}
			response.Body.Close()
			transport.CloseIdleConnections()
			_ = server.Close()
			client.Close()
		})
	}
}

// oneConn is a listener with one connection.
type oneConn struct {
	conn   net.Conn
	closed chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	if conn := l.conn; conn != nil {
		l.conn = nil
		return conn, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error   { close(l.closed); return nil }
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }
