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

// shared is the server that all tests of a test binary may use.
var shared struct {
	mu       sync.Mutex // guards the rest
	inMain   bool       // Main runs, and will end what Shared starts
	proc     *process
	dir      string
	endpoint Endpoint
	err      error
}

// Main runs a package's tests and then ends the server that Shared started:
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
	if shared.proc == nil && shared.err == nil {
		startShared()
	}
	if shared.err != nil {
		tb.Fatal(shared.err)
	}
	return shared.endpoint
}

func startShared() {
	if !shared.inMain {
		shared.err = errors.New("redistest: Shared needs redistest.Main to end the server: add `func TestMain(m *testing.M) { redistest.Main(m) }` to the package's tests")
		return
	}
	shared.dir, shared.err = os.MkdirTemp("", "redistest-")
	if shared.err != nil {
		return
	}
	var c command
	c, shared.proc, shared.err = launch(shared.dir, plainArgs)
	shared.endpoint = Endpoint{c.port}
}

func endShared() {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.proc != nil {
		shared.proc.kill()
	}
	_ = os.RemoveAll(shared.dir) // in the system's temporary directory anyway
}

var prefixes atomic.Uint64

// Prefix returns a short beginning for the names of keys that no other call in
// this test binary has returned.
func Prefix() string { return fmt.Sprintf("t%d:", prefixes.Add(1)) }
