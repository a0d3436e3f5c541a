package rulesfile

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/limit"
)

func textLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// changes are the ways in which files change. Each function creates a good file and returns its path,
// and a function that changes its text.
var changes = map[string]func(t *testing.T) (path string, change func(text string)){
	"in place": func(t *testing.T) (string, func(string)) {
		f := newRulesFile(t, good)
		return f.path, f.write
	},
	"renamed, as editors do": func(t *testing.T) (string, func(string)) {
		f := newRulesFile(t, good)
		return f.path, func(text string) {
			writeFile(t, f.path+"~", text)
			must(t, os.Rename(f.path+"~", f.path))
		}
	},
	"a link to another directory, as Kubernetes does": func(t *testing.T) (string, func(string)) {
		dir, n := t.TempDir(), 0
		publish := func(text string) {
			n++
			version := "..2026_" + strings.Repeat("i", n)
			must(t, os.Mkdir(filepath.Join(dir, version), 0o700))
			writeFile(t, filepath.Join(dir, version, "rules.yaml"), text)
			must(t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
			must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
			if n > 1 {
				must(t, os.RemoveAll(filepath.Join(dir, "..2026_"+strings.Repeat("i", n-1))))
			}
		}
		publish(good)
		path := filepath.Join(dir, "rules.yaml")
		must(t, os.Symlink(filepath.Join("..data", "rules.yaml"), path))
		return path, publish
	},
	"what a link leads to, in place": func(t *testing.T) (string, func(string)) {
		f := newRulesFile(t, good)
		link := filepath.Join(t.TempDir(), "link.yaml")
		must(t, os.Symlink(f.path, link))
		return link, f.write
	},
	"a directory replaced whole": func(t *testing.T) (string, func(string)) {
		dir := filepath.Join(t.TempDir(), "conf")
		path := filepath.Join(dir, "rules.yaml")
		publish := func(text string) {
			must(t, os.RemoveAll(dir))
			must(t, os.Mkdir(dir, 0o700))
			writeFile(t, path, text)
		}
		publish(good)
		return path, publish
	},
}

// However the file changes, it is loaded at the second look that sees the change. An invalid file is
// reported once and changes nothing.
func TestChangesAreSeen(t *testing.T) {
	for name, begin := range changes {
		t.Run(name, func(t *testing.T) {
			limiter := newLimiter(t)
			path, change := begin(t)
			var told []error
			rules := load(t, limiter, path, OnLoad(func(err error) { told = append(told, err) }))
			search := rule(t, rules, "search")
			inForce := func(quota int64, loads int) {
				t.Helper()
				if got := search.For("k").Limit(); got != limit.PerMinute(quota) {
					t.Errorf("in force: %v, want %d", got, quota)
				}
				if len(told) != loads {
					t.Errorf("loaded %d times, want %d: %v", len(told), loads, told)
				}
			}
			rules.look()
			rules.look()
			inForce(60, 0)
			change(better)
			rules.look()
			inForce(60, 0)
			rules.look()
			inForce(90, 1)
			change(bad)
			for range 4 {
				rules.look()
			}
			inForce(90, 2)
			if told[1] == nil {
				t.Error("an invalid file was taken")
			}
			change(good)
			rules.look()
			rules.look()
			inForce(60, 3)
		})
	}
}

// A file that is still being written is not loaded, even if its beginning is a valid rules file.
func TestHalfWrittenFilesAreNotTaken(t *testing.T) {
	f := newRulesFile(t, good)
	rules := f.load(newLimiter(t), OnLoad(func(err error) { t.Errorf("loaded: %v", err) }))
	search := rule(t, rules, "search")
	whole := "rules:\n  search:\n    limit: 5/1m\n    keys: {a: 90/1m}\n    dry_run: true\n"
	for n := range len(whole) {
		f.write(whole[:n])
		rules.look()
	}
	if got := search.For("k").Limit(); got != limit.PerMinute(60) {
		t.Errorf("in force: %v", got)
	}
	f.write(good) // equals the file in force: nothing to do
	rules.look()
	rules.look()
}

// A file that is missing for a while changes nothing, and is reported once.
func TestTheFileIsAway(t *testing.T) {
	f := newRulesFile(t, good)
	var told []error
	rules := f.load(newLimiter(t), OnLoad(func(err error) { told = append(told, err) }))
	must(t, os.Remove(f.path))
	for range 5 {
		rules.look()
	}
	if len(told) != 1 || !os.IsNotExist(told[0]) {
		t.Errorf("told %v", told)
	}
	if got := rule(t, rules, "search").For("k").Limit(); got != limit.PerMinute(60) {
		t.Errorf("in force: %v", got)
	}
	f.write(better)
	rules.look()
	rules.look()
	if len(told) != 2 || told[1] != nil {
		t.Errorf("told %v", told)
	}
}

// Watch looks at the file regularly, until its context ends.
func TestWatch(t *testing.T) {
	f := newRulesFile(t, good)
	loaded := make(chan error, 1)
	rules := f.load(newLimiter(t), Every(10*time.Millisecond), OnLoad(func(err error) { loaded <- err }))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); rules.Watch(ctx) }()
	f.write(better)
	if err := <-loaded; err != nil {
		t.Error(err)
	}
	if got := rule(t, rules, "search").For("k").Limit(); got != limit.PerMinute(90) {
		t.Errorf("in force: %v", got)
	}
	cancel()
	<-done
}
