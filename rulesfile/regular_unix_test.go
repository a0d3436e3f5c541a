//go:build unix

package rulesfile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/limit"
)

// A file that is not regular is refused at once, at start and later. For example, nobody may ever write
// into a named pipe.
func TestOnlyRegularFilesAreRead(t *testing.T) {
	limiter := newLimiter(t)
	pipe := filepath.Join(t.TempDir(), "pipe")
	must(t, syscall.Mkfifo(pipe, 0o600))
	link := filepath.Join(t.TempDir(), "rules.yaml")
	must(t, os.Symlink(pipe, link))
	for _, path := range []string{pipe, link, t.TempDir(), os.DevNull} {
		if err := soon(t, func() error { _, err := Load(limiter, path); return err }); !errors.Is(err, ErrInvalidFile) {
			t.Errorf("%s: %v", path, err)
		}
	}
	f := newRulesFile(t, good)
	rules := f.load(limiter)
	must(t, os.Remove(f.path))
	must(t, syscall.Mkfifo(f.path, 0o600))
	if err := soon(t, rules.Reload); !errors.Is(err, ErrInvalidFile) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { rules.Watch(ctx); ended <- nil }()
	cancel()
	_ = soon(t, func() error { return <-ended })
	if got := rule(t, rules, "search").For("k").Limit(); got != limit.PerMinute(60) {
		t.Errorf("in force: %v", got)
	}
}

// soon returns the result of f, and fails the test if f does not return.
func soon(t *testing.T, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("it waits for ever")
		return nil
	}
}
