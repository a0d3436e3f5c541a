package serve

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/serve/internal/config"
)

// Files that are replaced together while they are read, as Kubernetes replaces those of a ConfigMap, are never put in
// force as a mix of old and new ones.
func TestFilesThatAreReplacedTogether(t *testing.T) {
	of := func(versions ...int) (files []config.File) {
		for i, version := range versions {
			files = append(files, config.File{
				Name: fmt.Sprintf("%d.yaml", i),
				Text: fmt.Appendf(nil, "domain: d%d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: %d}}]", i, version),
			})
		}
		return files
	}
	server := startWithoutLooks(t, "RUNTIME_ROOT="+configDir(t, shop))
	var reads [][]config.File
	w := newWatch(server)
	w.read = func() ([]config.File, error) {
		files := reads[0]
		if len(reads) > 1 {
			reads = reads[1:]
		}
		return files, nil
	}
	expectVersion := func(version int) {
		t.Helper()
		for _, l := range server.service.Config().Limits() {
			if l.RequestsPerUnit() != int64(version) {
				t.Errorf("version %d of %s is in force, want %d", l.RequestsPerUnit(), l.StatName, version)
			}
		}
	}
	reads = [][]config.File{of(1, 0), of(2, 1), of(2, 2)} // replaced during the first two readings
	w.begin()
	expectVersion(2)

	reads = nil
	for version := 3; version < 3+maxMoving; version++ { // replaced during each look
		reads = append(reads, of(version, version-1))
	}
	last := 2 + maxMoving
	reads = append(reads, of(last, last))
	for range maxMoving {
		w.again()
	}
	expectVersion(last)
}

// startWithoutLooks starts a service that does not look at its files again, because the test does.
func startWithoutLooks(t *testing.T, settings ...string) *Server {
	t.Helper()
	s, _, err := FromEnvironment(append(settings,
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1", "PORT=0", "GRPC_PORT=0", "DEBUG_PORT=0", "USE_PROMETHEUS=false", "USE_STATSD=false"))
	must(t, err)
	s.LookEvery = time.Hour
	server, err := Start(t.Context(), s, slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(server.Close)
	return server
}

// Changed files are put in force at the second look that sees them, and only once. A directory that cannot be read
// changes nothing, however often it is looked at, and counts as one error. Neither does a mistake.
func TestLooks(t *testing.T) {
	server := startWithoutLooks(t, "RUNTIME_ROOT="+t.TempDir())
	failed := server.stats.ConfigLoadError.Load()
	w := newWatch(server)
	look := func(text string, inForce string, successes, failures uint64) {
		t.Helper()
		w.read = func() ([]config.File, error) {
			if text == "" {
				return nil, fs.ErrNotExist
			}
			return []config.File{{Name: "f", Text: []byte(text)}}, nil
		}
		w.again()
		in := ""
		if c := server.service.Config(); c != nil {
			in = c.Limits()[0].StatName
		}
		if in != inForce {
			t.Errorf("%q is in force, want %q", in, inForce)
		}
		if s, f := server.stats.ConfigLoadSuccess.Load(), server.stats.ConfigLoadError.Load()-failed; s != successes || f != failures {
			t.Errorf("%d were put in force, and %d were not, want %d and %d", s, f, successes, failures)
		}
	}
	const (
		a   = "domain: a\ndescriptors: [{key: k, rate_limit: {unit: day}}]"
		b   = "domain: b\ndescriptors: [{key: k, rate_limit: {unit: day}}]"
		bad = "domain: c\ndescriptors: [{key: k, rate_limit: {unit: eon}}]"
	)
	for _, l := range []struct {
		text, inForce       string
		successes, failures uint64
	}{
		{bad, "", 0, 0}, {bad, "", 0, 1}, {bad, "", 0, 1},
		{a, "", 0, 1}, {a, "a.k", 1, 1}, {a, "a.k", 1, 1},
		{b, "a.k", 1, 1}, {a, "a.k", 1, 1}, {b, "a.k", 1, 1}, {b, "b.k", 2, 1},
		{"", "b.k", 2, 2}, {"", "b.k", 2, 2}, {"", "b.k", 2, 2}, {b, "b.k", 2, 2}, {"", "b.k", 2, 3},
		{bad, "b.k", 2, 3}, {bad, "b.k", 2, 4}, {b, "b.k", 2, 4}, {b, "b.k", 3, 4},
	} {
		look(l.text, l.inForce, l.successes, l.failures)
	}
}

// A changed overlay is put in force at the second look that sees it, and only once. One that cannot be read, is gone or
// does not fit changes nothing, and counts as one error until there is another.
func TestLooksAtTheOverlay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "overlay.yaml")
	write := func(text string) { must(t, os.WriteFile(path, []byte(text), 0o600)) }
	const (
		a     = "limits: [{match: d.k, window: 1h}]"
		b     = "limits: [{match: d.k, window: 2h}]"
		bad   = "limits: 5"
		unfit = "limits: [{match: d.k, window: 9000h}]"
	)
	write(a)
	server := startWithoutLooks(t, "TIERLIMIT_OVERLAY="+path,
		"RUNTIME_ROOT="+configDir(t, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day}}]"))
	w := overlayWatch{server: server}
	must(t, w.begin())
	for i, l := range []struct {
		text                string
		hours               time.Duration
		successes, failures uint64
	}{
		{a, 1, 1, 0}, {b, 1, 1, 0}, {b, 2, 2, 0}, {b, 2, 2, 0},
		{bad, 2, 2, 0}, {bad, 2, 2, 1}, {bad, 2, 2, 1}, {b, 2, 2, 1}, {b, 2, 2, 1}, {bad, 2, 2, 1}, {bad, 2, 2, 2},
		{"", 2, 2, 2}, {"", 2, 2, 3}, {"", 2, 2, 3},
		{unfit, 2, 2, 3}, {unfit, 2, 2, 4}, {unfit, 2, 2, 4}, {a, 2, 2, 4}, {a, 1, 3, 4},
	} {
		if write(l.text); l.text == "" {
			must(t, os.Remove(path))
		}
		w.again()
		if window := server.service.Config().Limits()[0].Window; window != l.hours*time.Hour {
			t.Errorf("look %d: a window of %v is in force", i, window)
		}
		if s, f := server.stats.ConfigLoadSuccess.Load(), server.stats.ConfigLoadError.Load(); s != l.successes || f != l.failures {
			t.Errorf("look %d: %d were put in force, and %d were not", i, s, f)
		}
	}
}
