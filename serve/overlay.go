package serve

import (
	"bytes"
	"fmt"

	"github.com/tierlimit/tierlimit/internal/regularfile"
	"github.com/tierlimit/tierlimit/serve/internal/config"
)

// overlayWatch follows the file that TIERLIMIT_OVERLAY names, as [watch] follows the configuration files.
type overlayWatch struct {
	server    *Server
	seen      []byte // at the last look
	inForce   []byte
	refused   []byte // the overlay that did not fit,
	refusedAt int    // with the configuration of this number
	failed    string // the last error that was logged about an unreadable file
}

// begin reads the file before the first configuration is loaded. If an overlay is set, a service never runs without
// one.
func (w *overlayWatch) begin() error {
	path := w.server.settings.Overlay
	overlay, text, err := readOverlay(path)
	if err != nil {
		return fmt.Errorf("%w: TIERLIMIT_OVERLAY: %w", ErrInvalidSetting, err)
	}
	w.server.overlay, w.seen, w.inForce = overlay, text, text
	return nil
}

func readOverlay(path string) (*config.Overlay, []byte, error) {
	text, err := regularfile.Read(path, config.MaxOverlayBytes)
	if err != nil {
		return nil, nil, err
	}
	overlay, err := config.LoadOverlay(config.File{Name: path, Text: text})
	return overlay, text, err
}

// again puts a changed file in force once two consecutive looks have seen the same content. An overlay that does not
// fit the configuration is tried again with the next configuration.
func (w *overlayWatch) again() {
	s := w.server
	overlay, text, err := readOverlay(s.settings.Overlay)
	settled := bytes.Equal(text, w.seen)
	w.seen = text
	if !settled {
		return
	}
	if err != nil {
		w.logOnce(err)
		return
	}
	w.failed = ""
	if bytes.Equal(text, w.inForce) {
		return
	}
	number := s.tries()
	if w.refused != nil && bytes.Equal(text, w.refused) && w.refusedAt == number {
		return
	}
	if err := s.lay(overlay); err != nil {
		if s.life.Err() != nil {
			return
		}
		w.refused, w.refusedAt = text, number
		s.log.Error("the overlay does not fit the configuration; the current overlay stays in force", "error", err)
		return
	}
	w.inForce, w.refused = text, nil
	s.log.Info("the overlay is in force", "file", s.settings.Overlay)
}

// logOnce logs an error of the file, and does not repeat it while it stays the same.
func (w *overlayWatch) logOnce(err error) {
	if w.failed == err.Error() {
		return
	}
	w.failed = err.Error()
	w.server.stats.ConfigLoadError.Add(1)
	w.server.log.Error("the overlay cannot be read; the current overlay stays in force", "error", err)
}
