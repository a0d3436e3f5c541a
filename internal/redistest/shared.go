package redistest

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9/logging"
)

// shared is the servers that all tests of a test binary may use.
var shared struct {
	mu       sync.Mutex // guards the rest
	inMain   bool       // Main runs, and will end what was started
	started  []*process
	dirs     []string
	endpoint *Endpoint // of the one node; nil before it is asked for
	cluster  *Cluster  // likewise
}

// Main runs a package's tests and then ends the servers that Shared and SharedCluster started:
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
// It silences go-redis, which would log every failed dial of a server that a
// test killed on purpose.
func Main(m *testing.M) {
	logging.Disable()

	shared.mu.Lock()
	shared.inMain = true
	shared.mu.Unlock()

	m.Run() // the exit code finds its own way out
	endShared()
}

// Shared returns the server that the tests of a package have in common. It is
// started when first asked for and ended by Main, which the package's TestMain
// must call.
//
// Tests may run in parallel on it: each uses keys of its own, see Prefix, and
// none flushes, pauses or reconfigures it. A test that must, starts its own.
func Shared(tb testing.TB) Endpoint {
	tb.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.endpoint == nil {
		c, _, err := launchShared(plainArgs)
		if err != nil {
			tb.Fatal(err)
		}
		shared.endpoint = &Endpoint{c.port}
	}
	return *shared.endpoint
}

// SharedCluster returns the Cluster of three masters that the tests of a package have in
// common, as they have [Shared]'s server: to start one takes seconds. What holds for the use of
// that holds for this; and none moves slots, adds nodes, or looks at nodes' statistics.
func SharedCluster(tb testing.TB) *Cluster {
	tb.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.cluster == nil {
		c := &Cluster{masters: 3}
		for range c.masters {
			node := &clusterNode{}
			started, proc, err := launchShared(node.args)
			if err != nil {
				tb.Fatal(err)
			}
			node.Server = &Server{Endpoint: Endpoint{started.port}, tb: tb, command: started, proc: proc}
			c.nodes = append(c.nodes, node)
		}
		if err := c.form(tb); err != nil {
			tb.Fatal(err)
		}
		shared.cluster = c
	}
	return shared.cluster
}

// launchShared starts a server that Main ends.
func launchShared(args func(port int) []string) (command, *process, error) {
	if !shared.inMain {
		return command{}, nil, errors.New("redistest: shared servers need redistest.Main to end them: add `func TestMain(m *testing.M) { redistest.Main(m) }` to the package's tests")
	}
	dir, err := os.MkdirTemp("", "redistest-")
	if err != nil {
		return command{}, nil, err
	}
	shared.dirs = append(shared.dirs, dir)
	c, proc, err := launch(dir, args)
	if err == nil {
		shared.started = append(shared.started, proc)
	}
	return c, proc, err
}

func endShared() {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	for _, proc := range shared.started {
		proc.kill()
	}
	for _, dir := range shared.dirs {
		_ = os.RemoveAll(dir) // in the system's temporary directory anyway
	}
}

var prefixes atomic.Uint64

// Prefix returns a short beginning for the names of keys that no other call in
// this test binary has returned.
func Prefix() string { return fmt.Sprintf("t%d:", prefixes.Add(1)) }
