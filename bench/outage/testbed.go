package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// testbed replaces a test where redistest needs one. It keeps the cleanups and the failures, and has no other methods
// of a test.
type testbed struct {
	testing.TB
	dir string

	mu       sync.Mutex // guards the rest
	cleanups []func()
	failures []error
}

func newTestbed() (*testbed, error) {
	dir, err := os.MkdirTemp("", "outage-")
	return &testbed{dir: dir}, err
}

func (b *testbed) Helper()         {}
func (b *testbed) TempDir() string { return b.dir }

func (b *testbed) Cleanup(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cleanups = append(b.cleanups, f)
}

func (b *testbed) Errorf(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures = append(b.failures, fmt.Errorf(format, args...))
}

// Fatal does not return, like a test's. startServer recovers the panic.
func (b *testbed) Fatal(args ...any) { panic(fatal{fmt.Sprint(args...)}) }

type fatal struct{ text string }

// startServer starts a Redis server that only this run uses.
func (b *testbed) startServer() (s *redistest.Server, err error) {
	defer func() {
		switch cause := recover().(type) {
		case nil:
		case fatal:
			err = errors.New(cause.text)
		default:
			panic(cause)
		}
	}()
	return redistest.Start(b, "--enable-debug-command", "yes"), nil // see neighbours.Sleep
}

// close runs the cleanups, and returns the failures so far.
func (b *testbed) close() error {
	for _, f := range slices.Backward(b.cleanups) {
		f()
	}
	return errors.Join(append(b.failures, os.RemoveAll(b.dir))...)
}
