package serve

import (
	"context"
	"time"

	"github.com/tierlimit/tierlimit/serve/internal/config"
)

// watch reads the configuration's files again and again, and puts them in force when they have
// changed. It asks nobody to tell it of changes, which would have to be asked of each directory
// on the way through links.
type watch struct {
	server *Server
	seen   []config.File // at the last look
	tried  bool          // whether they have been put in force, or could not be,
	loaded []config.File // and as what, the last time
	failed string        // what was told last of a directory that cannot be read
	moving int           // looks in a row that have seen other files than the one before
}

// mostMoving is after how many looks files that change all the time are loaded as they are.
const mostMoving = 5

// begin reads the files for the first time.
func (w *watch) begin() {
	if files, ok := w.look(); ok {
		w.seen = files
		w.load()
	}
}

// lookAgain looks at files again and again, until ctx ends.
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

// again loads files that have changed, once two looks have seen the same: they may be being
// written. Where somebody writes again and again, that may never be so, and it is not waited for longer
// than a few looks.
func (w *watch) again() {
	files, ok := w.look()
	if !ok {
		return
	}
	if w.moving++; same(files, w.seen) {
		w.moving = 0
	}
	settled := w.moving == 0 || w.moving >= mostMoving
	w.seen = files
	if settled && (!w.tried || !same(files, w.loaded)) {
		w.load()
	}
}

func (w *watch) look() ([]config.File, bool) {
	s := w.server
	files, err := s.settings.readConfig()
	if err != nil {
		if w.failed != err.Error() { // once
			w.failed = err.Error()
			s.stats.ConfigLoadError.Add(1)
			s.log.Error("the configuration's directory (RUNTIME_ROOT, RUNTIME_SUBDIRECTORY, RUNTIME_APPDIRECTORY) cannot be read; what is in force stays", "error", err)
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
		s.log.Error("the configuration cannot be loaded; what is in force stays", "error", err)
		return
	}
	s.log.Info("the configuration is in force", "files", len(w.seen), "limits", len(s.service.Config().Limits()))
}
