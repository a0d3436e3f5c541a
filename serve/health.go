package serve

import (
	"net/http"
	"sync"

	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

// healthName is the name of the service in grpc.health.v1.
const healthName = "ratelimit"

// firstConfig is the part of the service that works once it has received a first configuration.
const firstConfig = "first config"

// healthState answers health checks over HTTP and gRPC: whether clients should send requests to the service.
type healthState struct {
	grpc *health.Server

	mu     sync.Mutex      // guards broken
	broken map[string]bool // by name of the part
}

func newHealth(broken ...string) *healthState {
	h := &healthState{grpc: health.NewServer(), broken: make(map[string]bool)}
	for _, part := range broken {
		h.broken[part] = true
	}
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
