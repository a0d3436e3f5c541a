package httplimit

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/limit"
)

// However a request ends, its slot is released, and it is charged for what was sent.
func TestRequestsThatEndInAnyWay(t *testing.T) {
	l := newLimiter(t)
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    int64 // units that Settle charges: the bytes of the response
		leaves  bool  // the client ends the request
	}{
		"returns": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "12345") }, 5, false},
		"aborts": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "1234")
			panic(http.ErrAbortHandler)
		}, 4, false},
		"panics":      {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "123"); panic("a mistake") }, 3, false},
		"ends itself": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "12"); runtime.Goexit() }, 2, false},
		"has early statuses": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusProcessing)
			_, _ = io.WriteString(w, "1234567")
		}, 7, false},
		"has trailers": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			_, _ = io.WriteString(w, "123456")
			w.Header().Set("X-Sum", "6")
			w.Header().Set(http.TrailerPrefix+"X-Late", "1")
		}, 6, false},
		"is left": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "12345678")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, 8, true},
		"has no more time": {func(w http.ResponseWriter, r *http.Request) {
			http.TimeoutHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), 20*time.Millisecond, "123456789").ServeHTTP(w, r)
		}, 9, false},
		"is taken over": {func(w http.ResponseWriter, _ *http.Request) {
			if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_ = conn.Close()
			}
		}, 0, false},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(name+map[bool]string{true: " over HTTP/2"}[http2], func(t *testing.T) {
				inFlight, bytes := newRule(t, l, "in-flight", limit.Concurrent(1)), newRule(t, l, "bytes", limit.PerHour(1000))
				key := func(*http.Request) string { return t.Name() }
				settles := Settle(func(_ *http.Request, r Response) int64 { return r.Bytes })
				over := make(chan struct{})
				limits := newMiddleware(t, l, Limit(inFlight, key), Limit(bytes, key, settles))(c.handler)
				server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer close(over)
					limits.ServeHTTP(w, r)
				}))
				server.EnableHTTP2 = http2
				server.Config.ErrorLog = log.New(io.Discard, "", 0)
				server.StartTLS()
				defer server.Close()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
				if err != nil {
					t.Fatal(err)
				}
				if response, err := server.Client().Do(request); err == nil {
					if c.leaves {
						cancel()
					}
					_, _ = io.Copy(io.Discard, response.Body)
					_ = response.Body.Close()
				}
				<-over
				if n := used(t, inFlight, key(nil)); n != 0 {
					t.Errorf("%d units are held after the request", n)
				}
				if n := used(t, bytes, key(nil)); n != c.want {
					t.Errorf("%d units are charged, want %d", n, c.want)
				}
			})
		}
	}
}
