package redistest

import (
	"sync"
	"testing"
)

// Server is a server that belongs to one test. Its methods may be called from any goroutine of the test. If a
// method fails, it fails the test, which continues.
type Server struct {
	Endpoint
	tb      testing.TB
	command command

	mu   sync.Mutex // guards proc
	proc *process
}

// Start starts a server with args added to its command line, and returns when it
// answers. It is killed when the test ends.
//
// The port is chosen here: args must not contain --port.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return start(tb, func(port int) []string { return append(plainArgs(port), args...) })
}

// start is Start with a complete command line.
func start(tb testing.TB, args func(port int) []string) *Server {
	tb.Helper()
	c, proc, err := launch(tb.TempDir(), args)
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{Endpoint: Endpoint{c.port}, tb: tb, command: c, proc: proc}
	tb.Cleanup(s.Kill)
	return s
}

// PID returns the process ID of the server, or of its last process if that was killed.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.pid()
}

// Pause freezes the server. Its connections stay open, the system accepts new ones, and nothing is answered until
// Resume. Then the server executes everything that was sent in the meantime.
func (s *Server) Pause() {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.proc.pause(); err != nil {
		s.tb.Errorf("redistest: pausing the server at %s (process %d): %v", s.Addr(), s.proc.pid(), err)
	}
}

// Resume lets a paused server continue.
func (s *Server) Resume() {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.proc.resume(); err != nil {
		s.tb.Errorf("redistest: resuming the server at %s (process %d): %v", s.Addr(), s.proc.pid(), err)
	}
}

// Kill ends the server, paused or not, without giving it time to shut down, and returns when it is gone. Killing it
// twice is harmless.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc.kill()
}

// Restart kills the server if it still runs, and starts it again at the same address, with the same arguments and
// an empty memory. It returns when the server answers.
func (s *Server) Restart() {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc.kill()
	proc, err := s.command.run()
	if err != nil {
		s.tb.Errorf("redistest: restarting the server at %s: %v", s.Addr(), err)
		return // s.proc stays the dead process, so that Kill remains harmless
	}
	s.proc = proc
}
