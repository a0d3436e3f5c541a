package serve

import (
	"context"
	"net/http"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// healthName is the name of the service in grpc.health.v1.
const healthName = "ratelimit"

// firstConfig is the part of the service that works once it has received a first configuration.
const firstConfig = "first config"

// healthState answers health checks over HTTP and gRPC: whether clients should send requests to the service.
type healthState struct {
	grpc *health.Server

	watchable  context.Context // ends when watches have to end
	endWatches context.CancelFunc

	mu     sync.Mutex      // guards broken
	broken map[string]bool // by name of the part
}

func newHealth() *healthState {
	h := &healthState{grpc: health.NewServer(), broken: make(map[string]bool)}
	h.watchable, h.endWatches = context.WithCancel(context.Background())
	h.set("", true)
	return h
}

// set records whether a part of the service works.
func (h *healthState) set(part string, works bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.put(part, works)
}

// begin records the initial state of a part. It does nothing if the part's state has been set already.
func (h *healthState) begin(part string, works bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, said := h.broken[part]; !said {
		h.put(part, works)
	}
}

// put is set for callers that hold the lock.
func (h *healthState) put(part string, works bool) {
	h.broken[part] = !works
	status := healthv1.HealthCheckResponse_SERVING
	if h.anyBroken() {
		status = healthv1.HealthCheckResponse_NOT_SERVING
	}
	h.grpc.SetServingStatus(healthName, status)
}

// waiting makes the service "" of grpc.health.v1, which stands for the whole server, not healthy until started. From
// then on it is healthy, as in envoyproxy/ratelimit, which listens only once it has its first configuration.
func (h *healthState) waiting() {
	h.set(firstConfig, false)
	h.grpc.SetServingStatus("", healthv1.HealthCheckResponse_NOT_SERVING)
}

// started ends waiting.
func (h *healthState) started() {
	h.set(firstConfig, true)
	h.grpc.SetServingStatus("", healthv1.HealthCheckResponse_SERVING)
}

func (h *healthState) anyBroken() bool {
	for _, broken := range h.broken {
		if broken {
			return true
		}
	}
	return false
}

func (h *healthState) ok() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.anyBroken()
}

func (h *healthState) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if !h.ok() {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_, _ = w.Write([]byte("OK"))
}

// watchedHealth is a health server whose watches end with the service. Otherwise a client that watches would hold up
// the end for as long as a call may take.
type watchedHealth struct {
	*health.Server
	of *healthState
}

// Watch implements [healthv1.HealthServer].
func (w watchedHealth) Watch(request *healthv1.HealthCheckRequest, stream healthv1.Health_WatchServer) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(w.of.watchable, cancel)()
	err := w.Server.Watch(request, watchStream{stream, ctx})
	if w.of.watchable.Err() != nil {
		return status.Error(codes.Unavailable, "the service ends")
	}
	return err
}

// watchStream is the stream of a watch, with a context that ends with the service.
type watchStream struct {
	healthv1.Health_WatchServer
	ctx context.Context
}

// Context returns the context that ends the watch.
func (s watchStream) Context() context.Context { return s.ctx }
