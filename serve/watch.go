package serve

import (
	"context"
	"time"

	"github.com/tierlimit/tierlimit/serve/internal/config"
)

// watch reads the configuration files at intervals, and puts them in force when they have changed. It does not use
// the system's change notifications, which would need a subscription for each directory on the way through links.
type watch struct {
	server *Server
	read   func() ([]config.File, error)
	seen   []config.File // at the last look
	tried  bool          // a load has been attempted,
	loaded []config.File // with these files
	failed string        // the last error that was logged about an unreadable directory
	moving int           // consecutive looks that each saw other files than the one before
}

// maxMoving is the number of looks after which files that keep changing are loaded as they are.
const maxMoving = 5

func newWatch(s *Server) *watch { return &watch{server: s, read: s.settings.readConfig} }

// begin reads the files for the first time.
func (w *watch) begin() {
	if files, ok := w.lookTwice(); ok {
		w.seen = files
		w.load()
	}
}

// lookAgain calls look at intervals until ctx ends.
func (s *Server) lookAgain(ctx context.Context, look func()) {
	ticker := time.NewTicker(s.settings.LookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			look()
		}
	}
}

// again loads changed files once two consecutive looks have seen the same content, because a writer may not be done.
// If files keep changing, again loads them after maxMoving looks.
func (w *watch) again() {
	files, ok := w.look()
	if !ok {
		return
	}
	if w.moving++; same(files, w.seen) {
		w.moving = 0
	}
	settled := w.moving == 0
	if w.moving >= maxMoving {
		if files, settled = w.lookTwice(); !settled {
			return
		}
	}
	w.seen = files
	if settled && (!w.tried || !same(files, w.loaded)) {
		w.load()
	}
}

// lookTwice looks until it sees the same content twice in a row, for files that are to be loaded without waiting for
// another look. Files are read one after another. If Kubernetes replaces those of a ConfigMap meanwhile, the first ones
// are old and the rest is new. If each of maxMoving looks sees other content, lookTwice returns the last.
func (w *watch) lookTwice() ([]config.File, bool) {
	files, ok := w.look()
	for n := 1; ok && n < maxMoving; n++ {
		before := files
		if files, ok = w.look(); same(files, before) {
			break
		}
	}
	return files, ok
}

func (w *watch) look() ([]config.File, bool) {
	s := w.server
	files, err := w.read()
	if err != nil {
		if w.failed != err.Error() { // log it only once
			w.failed = err.Error()
			s.stats.ConfigLoadError.Add(1)
			s.log.Error("the configuration's directory (RUNTIME_ROOT, RUNTIME_SUBDIRECTORY, RUNTIME_APPDIRECTORY) cannot be read; the current configuration stays in force", "error", err)
		}
		return nil, false
	}
	w.failed = ""
	return files, true
}

func (w *watch) load() {
	s := w.server
	w.tried, w.loaded = true, w.seen
	if err := s.load(w.seen); err != nil {
		if s.life.Err() != nil {
			return
		}
		s.log.Error("the configuration cannot be loaded; the current configuration stays in force", "error", err)
		return
	}
	s.log.Info("the configuration is in force", "files", len(w.seen), "limits", len(s.service.Config().Limits()))
}
