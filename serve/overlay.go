package serve

import (
	"bytes"
	"fmt"

	"github.com/tierlimit/tierlimit/internal/regularfile"
	"github.com/tierlimit/tierlimit/serve/internal/config"
)

// overlayWatch follows the file of TIERLIMIT_OVERLAY, as [watch] does the configuration's files.
type overlayWatch struct {
	server    *Server
	seen      []byte // at the last look
	inForce   []byte
	refused   []byte // what could not be put in force,
	refusedAt int    // beside the configuration of this number
	failed    string // what was told last of a file that cannot be read
}

// begin reads the file before the first configuration is loaded. A service never runs without
// the overlay that it is told to have.
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
	text, err := regularfile.Read(path, config.MostOverlayBytes)
	if err != nil {
		return nil, nil, err
	}
	overlay, err := config.LoadOverlay(config.File{Name: path, Text: text})
	return overlay, text, err
}

// again puts a file that has changed in force, once two looks have seen the same. One that does
// not fit the configuration is tried again beside the next.
func (w *overlayWatch) again() {
	s := w.server
	overlay, text, err := readOverlay(s.settings.Overlay)
	if err != nil && text == nil {
		w.tell(err)
		return
	}
	settled := bytes.Equal(text, w.seen)
	w.seen = text
	if !settled {
		return
	}
	if err != nil {
		w.tell(err)
		return
	}
	w.failed = ""
	if bytes.Equal(text, w.inForce) {
		return
	}
	number := s.loads()
	if w.refused != nil && bytes.Equal(text, w.refused) && w.refusedAt == number {
		return
	}
	if err := s.lay(overlay); err != nil {
		if s.life.Err() != nil {
			return
		}
		w.refused, w.refusedAt = text, number
		s.log.Error("the overlay does not fit the configuration; what is in force stays", "error", err)
		return
	}
	w.inForce, w.refused = text, nil
	s.log.Info("the overlay is in force", "file", s.settings.Overlay)
}

// tell says once what is wrong with the file.
func (w *overlayWatch) tell(err error) {
	if w.failed == err.Error() {
		return
	}
	w.failed = err.Error()
	w.server.stats.ConfigLoadError.Add(1)
	w.server.log.Error("the overlay cannot be read; what is in force stays", "error", err)
}
