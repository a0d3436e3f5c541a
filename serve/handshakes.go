package serve

import (
	"net"
	"sync"
	"time"

	"github.com/tierlimit/tierlimit/serve/internal/transport"
)

// handshakes is a listener that knows which of its connections are in their handshake. A gRPC server that ends waits
// for them, for up to two minutes, before it tells its clients to go elsewhere. A client that connects and sends
// nothing, such as a load balancer's probe, would hold up the end for that long.
type handshakes struct {
	net.Listener
	within time.Duration // time for handshakes that are not done when the service ends

	mu      sync.Mutex // guards the rest
	open    map[*shaking]struct{}
	endedBy time.Time // zero: the service is not ending
}

func newHandshakes(l net.Listener, within time.Duration) *handshakes {
	return &handshakes{Listener: transport.Listener{Listener: l}, within: within, open: make(map[*shaking]struct{})}
}

// Accept implements [net.Listener].
func (h *handshakes) Accept() (net.Conn, error) {
	accepted, err := h.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &shaking{Conn: accepted, of: h}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open[c] = struct{}{}
	return c, nil
}

// end gives handshakes that are in progress, and those that begin later, only a short time.
func (h *handshakes) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endedBy = time.Now().Add(h.within)
	for c := range h.open {
		_ = c.Conn.SetDeadline(h.endedBy)
	}
}

// shaking is a connection. gRPC gives it a deadline for its handshake and clears the deadline after it.
type shaking struct {
	net.Conn
	of *handshakes
}

// SetDeadline implements [net.Conn].
func (c *shaking) SetDeadline(t time.Time) error {
	h := c.of
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case t.IsZero():
		delete(h.open, c)
	case !h.endedBy.IsZero() && h.endedBy.Before(t):
		t = h.endedBy
	}
	return c.Conn.SetDeadline(t)
}

// Close implements [net.Conn].
func (c *shaking) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
