package tiered

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Law 11: an instance that starts while Redis is lost learns the fleet's size from a file.
func TestLaw11FleetFileIsForThoseWhoStartWithoutRedis(t *testing.T) {
	server := redistest.Start(t)
	prefix, path := redistest.Prefix(), filepath.Join(t.TempDir(), "fleet")
	const fleet = 3
	for range fleet {
		l := newLimiterOn(t, server.Client(t), prefix, FleetFile(path))
		defer l.Close()
	}
	redistest.Eventually(t, "the file says that there are three instances", func() bool {
		size, err := readFleetSize(path)
		return err == nil && size.Instances == fleet && time.Since(size.Seen) < time.Minute
	})
	server.Kill()
	for _, test := range []struct {
		options []Option
		want    int
	}{
		{nil, fleet},
		{[]Option{FleetSize(2)}, fleet},
		{[]Option{FleetSize(6)}, 6},
	} {
		l := newLimiterOn(t, server.Client(t), prefix, append(test.options, FleetFile(path), ColdStart(0))...)
		if n := l.FleetSize(); n != test.want {
			t.Errorf("%d options: a fleet of %d, want %d", len(test.options), n, test.want)
		}
		if d, err := newRule(t, l, "day", limit.PerDay(60)).AllowUpTo(t.Context(), "k", 60); err != nil || d.Granted != int64(60/test.want) {
			t.Errorf("a fleet of %d: %+v, %v", test.want, d, err)
		}
	}
	if l := newLimiterOn(t, server.Client(t), prefix); l.FleetSize() != assumedInstances {
		t.Errorf("without a file: a fleet of %d", l.FleetSize())
	}
}

// A file that is old, unreadable, or has unexpected content is ignored.
func TestFleetFileThatCannotBeUsed(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	dir := t.TempDir()
	path := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	seen := time.Now().Add(-fleetFileKeeps - time.Hour).Format(time.RFC3339)
	for _, test := range []struct{ path, says string }{
		{filepath.Join(dir, "absent"), ""},
		{path("old", `{"instances": 7, "seen": "`+seen+`"}`), ""},
		{path("text", "seven"), "does not contain the size of a fleet"},
		{path("none", `{"instances": 0}`), "instances in the file is 0"},
		{path("negative", `{"instances": -3}`), "instances in the file is -3"},
		{path("long", strings.Repeat(" ", 1<<20)), "too large"},
		{dir, "not a regular file"},
	} {
		var log bytes.Buffer
		l := newLimiterOn(t, server.Client(t), "of-no-use", FleetFile(test.path), Logger(slog.New(slog.NewTextHandler(&log, nil))))
		if n := l.FleetSize(); n != assumedInstances {
			t.Errorf("%s: a fleet of %d", test.path, n)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		l.log.flush(time.Minute) // Close waits less for the logger than a busy machine may take
		if warned := strings.Contains(log.String(), "fleet's size"); warned != (test.says != "") || !strings.Contains(log.String(), test.says) {
			t.Errorf("%s: the log says %q, want %q", test.path, log.String(), test.says)
		}
	}
}

// The file keeps the largest size of the last days, whichever instance observed it.
func TestFleetFileKeepsTheLargestSize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fleet")
	var log bytes.Buffer
	newFile := func() *fleetFile {
		return &fleetFile{path: path, log: newQuietLog(slog.New(slog.NewTextHandler(&log, nil)))}
	}
	first, second := newFile(), newFile()
	now := time.Now()
	says := func(want int) {
		t.Helper()
		f := newFile()
		if size := f.read(now); size != want {
			t.Errorf("it says %d instances, want %d", size, want)
		}
		f.log.flush(time.Minute)
	}
	first.heard(4, now)
	says(4)
	second.heard(12, now)
	says(12)
	now = now.Add(fleetFileEvery)
	first.heard(5, now) // this instance has not observed the twelve
	says(12)
	now = now.Add(6 * 24 * time.Hour)
	second.heard(3, now)
	says(12)
	now = now.Add(fleetFileKeeps)
	says(0)
	second.heard(3, now)
	says(3)
	first.log.flush(time.Minute)
	second.log.flush(time.Minute)
	if log.Len() > 0 {
		t.Errorf("it logged %s", log.String())
	}
	text, err := os.ReadFile(path)
	if err != nil || !json.Valid(text) {
		t.Errorf("%q, %v", text, err)
	}
	if left, err := filepath.Glob(path + ".*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	blocked := &fleetFile{path: filepath.Join(path, "below-a-file"), log: first.log}
	blocked.heard(4, now)
	blocked.log.flush(time.Minute)
	if !strings.Contains(log.String(), "cannot be written") {
		t.Errorf("nothing was said of a file that cannot be written: %q", log.String())
	}
}

// A file that does not contain the size of a fleet was named by mistake, and stays as it is. An empty file is
// replaced.
func TestFleetFileReplacesNothingElse(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	var log bytes.Buffer
	hear := func(path string) {
		t.Helper()
		log.Reset()
		f := &fleetFile{path: path, log: newQuietLog(slog.New(slog.NewTextHandler(&log, nil)))}
		f.heard(3, now)
		f.log.flush(time.Minute)
	}
	for name, text := range map[string]string{
		"passwords": "root:x:0:0:root:/root:/bin/bash\n", "json": `{"limits": []}`, "none": `{"instances": 0}`, "long": strings.Repeat("x", 2*fleetFileMost),
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		hear(path)
		if is, err := os.ReadFile(path); err != nil || string(is) != text {
			t.Errorf("%s: %q, %v", name, is, err)
		}
		if !strings.Contains(log.String(), "is not replaced") {
			t.Errorf("%s: the log says %q", name, log.String())
		}
	}
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	hear(empty)
	if size, err := readFleetSize(empty); err != nil || size.Instances != 3 || log.Len() > 0 {
		t.Errorf("an empty file: %v, %v, the log says %q", size, err, log.String())
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*.*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// If the file cannot be replaced, nothing is left behind, however often the limiter tries.
func TestFleetFileThatCannotBeReplaced(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "fleet")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	f := &fleetFile{path: path, log: newQuietLog(slog.New(slog.DiscardHandler)), largest: fleetSize{3, time.Now()}}
	if err := f.write(time.Now()); err == nil {
		t.Error("a directory was replaced by a file")
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
}
