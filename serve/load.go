package serve

import (
	"runtime/debug"

	"github.com/tierlimit/tierlimit/serve/internal/config"
)

// load puts configuration files in force, either all of them or none.
func (s *Server) load(files []config.File) error {
	s.loading.Lock()
	defer s.loading.Unlock()
	s.tried++
	err := s.put(files, s.overlay)
	s.health.started()
	if s.refused = nil; err != nil {
		s.refused, s.refusal = files, err
	}
	return err
}

// forgetRefused forgets the files that were refused, because they are no longer the last ones.
func (s *Server) forgetRefused() {
	s.loading.Lock()
	defer s.loading.Unlock()
	s.refused = nil
}

// inForceAlready reports whether these files are the ones in force. If so, they count as loaded.
func (s *Server) inForceAlready(files []config.File) bool {
	s.loading.Lock()
	defer s.loading.Unlock()
	if s.loaded == 0 || !same(files, s.files) {
		return false
	}
	s.refused = nil // no longer the last ones
	s.stats.ConfigLoadSuccess.Add(1)
	return true
}

// refusalOf returns why these files were refused last, or nil if they were not.
func (s *Server) refusalOf(files []config.File) error {
	s.loading.Lock()
	defer s.loading.Unlock()
	if s.refused == nil || !same(files, s.refused) {
		return nil
	}
	return s.refusal
}

// lay puts an overlay in force, either whole or not at all. Without a configuration it only keeps the overlay for the
// first.
func (s *Server) lay(overlay *config.Overlay) error {
	s.loading.Lock()
	defer s.loading.Unlock()
	if s.refused != nil { // the refusal may have been the previous overlay's fault
		err := s.put(s.refused, overlay)
		if err == nil {
			s.refused = nil
			s.log.Info("the configuration that was refused before is in force, with the new overlay")
			return nil
		}
		if s.life.Err() == nil && err.Error() != s.refusal.Error() {
			s.log.Error("the configuration that was refused before cannot be loaded with the new overlay either", "error", err)
		}
		s.refusal = err
	}
	if s.loaded == 0 {
		s.overlay = overlay
		return nil
	}
	return s.put(s.files, overlay)
}

// tries returns how many configurations have been read.
func (s *Server) tries() int {
	s.loading.Lock()
	defer s.loading.Unlock()
	return s.tried
}

// manyLimits is the number of limits from which on put returns free memory to the system. Reading so many limits takes
// tens of megabytes, several times what is kept. Go would collect that garbage only after as much has been allocated
// again, which takes minutes, and would keep the memory for longer.
const manyLimits = 10_000

// put loads the files and puts them in force. The caller holds loading. If the service ends meanwhile, put gives up
// and does not count that as an error of the configuration.
func (s *Server) put(files []config.File, overlay *config.Overlay) error {
	c, err := config.Load(s.life, files, s.settings.MergeDomains, overlay)
	if s.life.Err() != nil {
		return s.life.Err()
	}
	if err == nil {
		err = s.service.Load(c)
	}
	if err != nil {
		s.stats.ConfigLoadError.Add(1)
		return err
	}
	s.files, s.overlay = files, overlay
	s.loaded++
	if len(c.Limits()) >= manyLimits {
		go debug.FreeOSMemory()
	}
	s.stats.ConfigLoadSuccess.Add(1)
	for _, warning := range c.Warnings {
		s.log.Warn("configuration: " + warning)
	}
	if s.settings.HealthyWithConfig {
		s.health.set("config", !c.IsEmpty())
	}
	return nil
}
