package serve

import (
	"fmt"
	"log/slog"
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
	s, _, err := FromEnvironment([]string{"RUNTIME_ROOT=" + configDir(t, shop), "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1", "PORT=0", "GRPC_PORT=0", "DEBUG_PORT=0", "USE_PROMETHEUS=false", "USE_STATSD=false"})
	must(t, err)
	s.LookEvery = time.Hour // the test calls begin and again itself
	server, err := Start(t.Context(), s, slog.New(slog.DiscardHandler))
	must(t, err)
	defer server.Close()
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
	reads = [][]config.File{of(2, 1), of(2, 2)} // replaced during the first reading
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
