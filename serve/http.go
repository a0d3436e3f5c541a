package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/pprof"
	"os"
	"slices"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

// longestJSON is how many bytes a request over HTTP may have, which is as many as a request over gRPC.
const longestJSON = 4 << 20

// newHTTPServer returns a server that bounds the time that a client may take.
func newHTTPServer(handler http.Handler) *http.Server {
	return &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
}

// longestBody is how long a client may take to send a request.
const longestBody = 10 * time.Second

// jsonHandler answers requests in protobuf's JSON form: 200 if they are within their limits, 429 if not, and 400 for
// mistakes. A request that has not arrived within the given time is answered 408.
func jsonHandler(decide func(*ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error), within time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(within)); err != nil {
			httpError(w, http.StatusInternalServerError)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, longestJSON))
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			httpError(w, http.StatusRequestEntityTooLarge)
			return
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			httpError(w, http.StatusRequestTimeout)
			return
		}
		var request ratelimitv3.RateLimitRequest
		if err != nil || protojson.Unmarshal(body, &request) != nil {
			httpError(w, http.StatusBadRequest)
			return
		}
		response, err := decide(&request)
		if err != nil {
			httpError(w, http.StatusBadRequest)
			return
		}
		text, err := protojson.Marshal(response)
		if err != nil {
			httpError(w, http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if response.GetOverallCode() == ratelimitv3.RateLimitResponse_OVER_LIMIT {
			w.WriteHeader(http.StatusTooManyRequests)
		}
		_, _ = w.Write(text)
	}
}

func httpError(w http.ResponseWriter, code int) { http.Error(w, http.StatusText(code), code) }

// debugHandler serves the pages for operators, and a list of them.
func (s *Server) debugHandler() http.Handler {
	mux := http.NewServeMux()
	pages := map[string]string{
		"/rlconfig":            "the configuration in force",
		"/stats":               "statistics",
		"/debug/pprof/":        "profiles",
		"/debug/pprof/profile": "a CPU profile",
		"/debug/pprof/trace":   "a trace",
		"/live/":               "a page that shows what the limiter is doing",
	}
	mux.HandleFunc("/rlconfig", func(w http.ResponseWriter, _ *http.Request) {
		if c := s.service.Config(); c != nil {
			_ = c.Dump(w) // an error means that the client has disconnected
		}
	})
	mux.HandleFunc("/stats", func(w http.ResponseWriter, _ *http.Request) { _, _ = s.stats.WriteTo(w) })
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.Handle("/live/", http.StripPrefix("/live", s.page))
	// As in envoyproxy/ratelimit, the list is at all other paths too: a probe may ask for any.
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		for _, path := range slices.Sorted(maps.Keys(pages)) {
			fmt.Fprintf(w, "%s: %s\n", path, pages[path])
		}
	})
	return mux
}

// endHTTP lets requests in flight end, for at most within.
func endHTTP(server *http.Server, within time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		_ = server.Close()
	}
}
