//go:build unix

package tiered

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A named pipe, into which nobody may ever write, is neither waited for nor replaced.
func TestFleetFileThatIsAPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o644); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	f := &fleetFile{path: pipe, log: newQuietLog(slog.New(slog.NewTextHandler(&log, nil)))}
	n := f.read(time.Now())
	f.log.flush(time.Minute)
	if n != 0 || !strings.Contains(log.String(), "not a regular file") {
		t.Errorf("a fleet of %d, the log says %q", n, log.String())
	}
	f.heard(3, time.Now())
	if info, err := os.Stat(pipe); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("the pipe was replaced: %v, %v", info, err)
	}
}
