package serve

import (
	"net/http"
	"sync"

	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

// healthName is the name of the service in grpc.health.v1.
const healthName = "ratelimit"

// healthState says whether the service is to be sent requests: over HTTP and gRPC.
type healthState struct {
	grpc *health.Server

	mu     sync.Mutex      // guards broken
	broken map[string]bool // by part
}

func newHealth(broken ...string) *healthState {
	h := &healthState{grpc: health.NewServer(), broken: make(map[string]bool)}
	for _, part := range broken {
		h.broken[part] = true
	}
	h.set("", true)
	return h
}

// set says of a part of the service whether it works.
func (h *healthState) set(part string, works bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.put(part, works)
}

// begin is set for what was so before anything was said of the part: what has been said since stays.
func (h *healthState) begin(part string, works bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, said := h.broken[part]; !said {
		h.put(part, works)
	}
}

// put is for who holds the lock.
func (h *healthState) put(part string, works bool) {
	h.broken[part] = !works
	status := healthv1.HealthCheckResponse_SERVING
	if h.anyBroken() {
		status = healthv1.HealthCheckResponse_NOT_SERVING
	}
	h.grpc.SetServingStatus(healthName, status)
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
