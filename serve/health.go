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

	mu     sync.Mutex // guards broken
	broken map[string]bool
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
	if works {
		delete(h.broken, part)
	} else {
		h.broken[part] = true
	}
	status := healthv1.HealthCheckResponse_SERVING
	if len(h.broken) > 0 {
		status = healthv1.HealthCheckResponse_NOT_SERVING
	}
	h.grpc.SetServingStatus(healthName, status)
}

func (h *healthState) ok() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.broken) == 0
}

func (h *healthState) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if !h.ok() {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_, _ = w.Write([]byte("OK"))
}
