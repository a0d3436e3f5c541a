//go:build original

package serve

import (
	"fmt"
	"io"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// received sums the counters that a statsd server has received, by name.
type received struct {
	mu   sync.Mutex
	sums map[string]int
}

func receive(t *testing.T) (*received, []string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	r := &received{sums: make(map[string]int)}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go r.read(connection)
		}
	}()
	host, port, err := net.SplitHostPort(listener.Addr().String())
	must(t, err)
	return r, []string{"USE_STATSD=true", "DISABLE_STATS=false", "STATSD_HOST=" + host, "STATSD_PORT=" + port, "STATS_FLUSH_INTERVAL=100ms", "EXTRA_TAGS=zone:a.b,env:x"}
}

func (r *received) read(connection io.Reader) {
	var text strings.Builder
	buffer := make([]byte, 64<<10)
	for {
		n, err := connection.Read(buffer)
		text.Write(buffer[:n])
		lines := strings.SplitAfter(text.String(), "\n")
		text.Reset()
		text.WriteString(lines[len(lines)-1])
		r.mu.Lock()
		for _, line := range lines[:len(lines)-1] {
			var value int
			name, rest, _ := strings.Cut(line, ":")
			if _, err := fmt.Sscanf(rest, "%d|c\n", &value); err == nil && strings.Contains(name, ".rate_limit.") || strings.Contains(name, "total_requests") {
				r.sums[name] += value
			}
		}
		r.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (r *received) all() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.sums)
}

// The names, tags and numbers sent to statsd equal those of envoyproxy/ratelimit.
func TestDifferentialStatsd(t *testing.T) {
	dir := configDir(t, `
domain: d
descriptors:
  - {key: k, rate_limit: {unit: year, requests_per_unit: 3}}
  - {key: v, value: 10.0.0.1, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: detail, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 9}}
`)
	theirs, settings := receive(t)
	original := startOriginal(t, dir, settings...)
	ours, settings := receive(t)
	own := startOwn(t, dir, settings...)
	client := own.client(t)
	for _, words := range []string{"d k=a", "d k=a k=b", "d k=a", "d k=a v=10.0.0.1", "d v=10.0.0.1 detail=x:y", "none a=b"} {
		ask(t, original, asking(words))
		ask(t, client, asking(words))
	}
	own.Close()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the original's\n%v\nours\n%v", theirs.all(), ours.all())
		}
	})
	redistest.Eventually(t, "both have sent everything, and the same", func() bool {
		a, b := theirs.all(), ours.all()
		return a["ratelimit.service.rate_limit.none.domain_not_found.__env=x.__zone=a_b"] == 1 && maps.Equal(a, b)
	})
}
