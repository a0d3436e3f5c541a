package httplimit

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/limit"
)

// both runs a test with a middleware that passes the response writer on unchanged, and with one that
// wraps the writer in order to settle.
func both(t *testing.T, test func(t *testing.T, limits func(http.Handler) http.Handler)) {
	l := newLimiter(t)
	plain, settled := newRule(t, l, "plain", limit.PerHour(100)), newRule(t, l, "settled", limit.PerHour(100))
	t.Run("plain", func(t *testing.T) { test(t, newMiddleware(t, l, Limit(plain, Everyone))) })
	t.Run("settled", func(t *testing.T) {
		test(t, newMiddleware(t, l, Limit(settled, Everyone, Settle(func(_ *http.Request, r Response) int64 {
			return int64(r.Status) / 100
		}))))
		if got := used(t, settled, "all"); got != 1 && got != 2 {
			t.Errorf("%d units were charged", got)
		}
	})
}

// Flushed data arrives while the handler is still running.
func TestStreamingIsNotBuffered(t *testing.T) {
	both(t, func(t *testing.T, limits func(http.Handler) http.Handler) {
		arrived := make(chan struct{})
		server := httptest.NewServer(limits(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for i, flush := range []func() error{
				http.NewResponseController(w).Flush,
				func() error { w.(http.Flusher).Flush(); return nil },
			} {
				_, _ = fmt.Fprintf(w, "data: %d\n", i)
				if err := flush(); err != nil {
					t.Errorf("flushing: %v", err)
				}
				<-arrived
			}
		})))
		defer server.Close()
		response, err := http.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		lines := bufio.NewReader(response.Body)
		for i := range 2 {
			line, err := lines.ReadString('\n')
			if err != nil || line != fmt.Sprintf("data: %d\n", i) {
				t.Fatalf("line %d is %q (%v)", i, line, err)
			}
			arrived <- struct{}{}
		}
		_, _ = io.Copy(io.Discard, lines)
	})
}

// A websocket library can take the connection over in either of the ways that it may use.
func TestConnectionsCanBeTakenOver(t *testing.T) {
	both(t, func(t *testing.T, limits func(http.Handler) http.Handler) {
		server := httptest.NewServer(limits(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			hijack := http.NewResponseController(w).Hijack
			if r.URL.Path == "/itself" {
				hijack = w.(http.Hijacker).Hijack
			}
			conn, buffered, err := hijack()
			if err != nil {
				t.Errorf("taking over: %v", err)
				return
			}
			defer conn.Close()
			_, _ = buffered.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_ = buffered.Flush()
			line, _ := buffered.ReadString('\n')
			_, _ = io.WriteString(conn, strings.ToUpper(line))
		})))
		defer server.Close()
		for _, path := range []string{"/controller", "/itself"} {
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello\n", path)
			answer, err := io.ReadAll(conn)
			if err != nil || !strings.HasSuffix(string(answer), "HELLO\n") {
				t.Errorf("%s: %q (%v)", path, answer, err)
			}
		}
	})
}

// Without Settle, the handler gets the server's own writer. Some functions of net/http use unexported
// methods of the writer: http.MaxBytesReader closes the connection with one.
func TestOnlySettleWrapsTheWriter(t *testing.T) {
	l := newLimiter(t)
	rule := newRule(t, l, "rule", limit.PerHour(100))
	for name, c := range map[string]struct {
		options []Option
		wrapped bool
	}{
		"a limit":     {[]Option{Limit(rule, Everyone)}, false},
		"ForHandlers": {[]Option{Limit(rule, Everyone), ForHandlers()}, false},
		"HandlerCost": {[]Option{Limit(rule, Everyone, HandlerCost())}, false},
		"Settle":      {[]Option{Limit(rule, Everyone, Settle(func(*http.Request, Response) int64 { return 1 }))}, true},
	} {
		own, wrapped := httptest.NewRecorder(), false
		newMiddleware(t, l, c.options...)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			wrapped = w != http.ResponseWriter(own)
		})).ServeHTTP(own, httptest.NewRequest(http.MethodGet, "/", nil))
		if wrapped != c.wrapped {
			t.Errorf("%s: the writer is wrapped: %v", name, wrapped)
		}
	}
}

// Deadlines, and reading while writing, reach the connection.
func TestResponseControllerReachesTheConnection(t *testing.T) {
	both(t, func(t *testing.T, limits func(http.Handler) http.Handler) {
		server := httptest.NewServer(limits(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
				t.Errorf("reading while writing: %v", err)
			}
		})))
		defer server.Close()
		response, err := http.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
	})
}

// gin's Context.Stream calls the writer's CloseNotify to learn that the client has gone, and panics if
// the writer does not have it.
func TestWritersTellThatTheClientHasGone(t *testing.T) {
	type notifier interface{ CloseNotify() <-chan bool }
	both(t, func(t *testing.T, limits func(http.Handler) http.Handler) {
		gone := make(chan bool)
		server := httptest.NewServer(limits(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			client := w.(notifier).CloseNotify()
			_ = http.NewResponseController(w).Flush()
			gone <- <-client
		})))
		defer server.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		cancel()
		if !<-gone {
			t.Error("the channel was closed")
		}
	})
	for name, w := range map[string]http.ResponseWriter{
		"a writer without it": httptest.NewRecorder(),
		"one that wraps such": &recorder{ResponseWriter: httptest.NewRecorder()},
		"one that hides one":  hidden{&recorder{ResponseWriter: httptest.NewRecorder()}},
	} {
		select {
		case <-(&recorder{ResponseWriter: w}).CloseNotify():
			t.Errorf("%s: the client has gone", name)
		default:
		}
	}
}

// hidden is a writer that exposes another writer through Unwrap only.
type hidden struct{ http.ResponseWriter }

func (h hidden) Unwrap() http.ResponseWriter { return h.ResponseWriter }
