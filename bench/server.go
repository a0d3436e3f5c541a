package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// serverVariable names the environment variable that chooses the server, as for the tests of the library.
const serverVariable = "TIERLIMIT_REDIS_SERVER"

// server is a Redis server that only this run uses, on loopback, without persistence.
type server struct {
	process *exec.Cmd
	ended   chan struct{} // closed when the process has ended and been waited for
	dir     string
	addr    string
}

func (s *server) url() string { return "redis://" + s.addr + "/0" }

// stop kills the server by its process ID, and returns when it has ended.
func (s *server) stop() {
	_ = s.process.Process.Kill() // fails only if the process has ended already
	<-s.ended
	_ = os.RemoveAll(s.dir) // it is in the system's temporary directory
}

// startServer starts the named server, and returns when it answers.
func startServer(ctx context.Context, name string, args ...string) (*server, error) {
	binary, err := findServer(name)
	if err != nil {
		return nil, err
	}
	// Try again if another process takes the free port first.
	var s *server
	for range 3 {
		if s, err = startOnce(ctx, binary, args); err == nil || ctx.Err() != nil {
			break
		}
	}
	return s, err
}

func findServer(name string) (string, error) {
	if name == "" {
		name = os.Getenv(serverVariable)
	}
	if name != "" {
		return exec.LookPath(name)
	}
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("neither redis-server nor valkey-server is on PATH: install one (`make redis` does on Debian and Ubuntu), or choose with -redis-server or -redis")
}

func startOnce(ctx context.Context, binary string, args []string) (*server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{addr: listener.Addr().String(), ended: make(chan struct{})}
	_, port, err := net.SplitHostPort(s.addr)
	if err := errors.Join(err, listener.Close()); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("", "bench-"); err != nil {
		return nil, err
	}
	log := filepath.Join(s.dir, "log")
	s.process = exec.Command(binary, append([]string{"--port", port, "--bind", "127.0.0.1", "--enable-debug-command", "yes",
		"--save", "", "--appendonly", "no", "--dir", s.dir, "--logfile", log}, args...)...)
	if err := redistest.StartTied(s.process); err != nil { // the server ends with this program, however that ends
		_ = os.RemoveAll(s.dir)
		return nil, err
	}
	go func() {
		_ = s.process.Wait() // the error only says that the process was killed
		close(s.ended)
	}()
	if err := s.waitUntilReady(ctx); err != nil {
		said, _ := os.ReadFile(log)
		s.stop()
		return nil, fmt.Errorf("starting %s: %w; it said:\n%s", binary, err, said)
	}
	return s, nil
}

// waitUntilReady returns when this process answers, and not another one that took the port first.
func (s *server) waitUntilReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	client, err := newControl(s.url())
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	for {
		// A bare dial comes first, because go-redis logs its own failed dials.
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.addr)
		if err == nil {
			_ = conn.Close()
			info, err := readInfo(ctx, client, "server")
			if err == nil && info["process_id"] == strconv.Itoa(s.process.Process.Pid) {
				return nil
			}
		}
		select {
		case <-s.ended:
			return errors.New("it ended at once")
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
