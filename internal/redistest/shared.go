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

// shared has the servers that all tests of a test binary may use.
var shared struct {
	mu       sync.Mutex // guards the rest
	inMain   bool       // Main runs, and will end the servers
	started  []*process
	dirs     []string
	endpoint *Endpoint // of the single node; nil until it is first requested
	cluster  *Cluster  // nil until it is first requested
}

// Main runs a package's tests and then ends the servers that Shared and SharedCluster started:
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
// It silences go-redis, which would log every failed dial to a server that a test has killed on purpose.
func Main(m *testing.M) {
	logging.Disable()

	shared.mu.Lock()
	shared.inMain = true
	shared.mu.Unlock()

	m.Run() // m.Run keeps the exit code, with which the test binary then exits
	endShared()
}

// Shared returns the server that the tests of a package share. It is started when it is first requested, and ended
// by Main, which the package's TestMain must call.
//
// Tests may use it in parallel: each test uses its own keys, see Prefix, and none flushes, pauses or reconfigures
// it. A test that needs to do so starts its own server.
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

// SharedCluster returns the Cluster of three masters that the tests of a package share, like [Shared]'s server,
// because starting one takes seconds. The same rules apply; in addition, no test moves slots, adds nodes, or looks
// at the statistics of nodes.
func SharedCluster(tb testing.TB) *Cluster {
	tb.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.cluster == nil {
		c := &Cluster{masters: 3}
		for range c.masters {
			started, proc, err := launchShared(nodeArgs)
			if err != nil {
				tb.Fatal(err)
			}
			c.nodes = append(c.nodes, &Server{Endpoint: Endpoint{started.port}, tb: tb, command: started, proc: proc})
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

// Prefix returns a short prefix for the names of keys, which no other call in this test binary has returned.
func Prefix() string { return fmt.Sprintf("t%d:", prefixes.Add(1)) }
