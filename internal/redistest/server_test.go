package redistest

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestStart(t *testing.T) {
	t.Parallel()
	s := Start(t, "--maxmemory", "12mb")
	options, err := redis.ParseURL(s.URL())
	if err != nil || options.Addr != s.Addr() {
		t.Errorf("URL %q: %v, address %q; want that of %q", s.URL(), err, options.Addr, s.Addr())
	}
	config, err := s.Client(t).ConfigGet(t.Context(), "maxmemory").Result()
	if err != nil || config["maxmemory"] != strconv.Itoa(12<<20) {
		t.Errorf("maxmemory of a server started with 12mb: %v, %v", config, err)
	}
}

func TestStartSaysWhatTheServerSaid(t *testing.T) {
	t.Parallel()
	_, _, err := launch(t.TempDir(), func(port int) []string {
		return append(plainArgs(port), "--no-such-setting", "1")
	})
	if err == nil || !strings.Contains(err.Error(), "no-such-setting") {
		t.Errorf("error of a server with a bad setting: %v", err)
	}
}

func TestStartTriesAnotherPort(t *testing.T) {
	t.Parallel()
	taken := Start(t)
	var tried []int
	s := start(t, func(port int) []string {
		tried = append(tried, port)
		if len(tried) == 1 {
			return plainArgs(taken.port)
		}
		return plainArgs(port)
	})
	if len(tried) != 2 || s.port != tried[1] {
		t.Errorf("server listens on %d after trying %d; want the second try", s.port, tried)
	}
	if err := s.Client(t).Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	s := Start(t)
	client := s.Client(t)
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}

	s.Pause()
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	// The client is already connected, so the command is sent, and executed late.
	err := client.Set(short, "late", "yes", 0).Err()
	if timeout := net.Error(nil); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("SET on a paused server: %v; want a time-out", err)
	}

	s.Resume()
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("PING on a resumed server: %v", err)
	}
	if got, err := client.Get(t.Context(), "late").Result(); got != "yes" {
		t.Errorf("what was sent during the pause was not executed after it: %q, %v", got, err)
	}
}

func TestKillPaused(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.Pause()
	s.Kill()
	s.Kill() // harmless
	if conn, err := net.Dial("tcp", s.Addr()); err == nil {
		_ = conn.Close()
		t.Error("a killed server accepts connections")
	}
}

func TestRestart(t *testing.T) {
	t.Parallel()
	s := Start(t, "--maxmemory", "12mb")
	client := s.Client(t)
	if err := client.Set(t.Context(), "key", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	for _, before := range []string{"running", "killed", "paused"} {
		addr, pid := s.Addr(), s.PID()
		switch before {
		case "killed":
			s.Kill()
		case "paused":
			s.Pause()
		}
		s.Restart()
		if s.Addr() != addr || s.PID() == pid {
			t.Errorf("%s server restarted from %s, process %d to %s, process %d; want the same address, another process",
				before, addr, pid, s.Addr(), s.PID())
		}
		if n, err := client.DBSize(t.Context()).Result(); n != 0 || err != nil {
			t.Errorf("%s server restarted with %d keys, %v; want 0", before, n, err)
		}
		config, err := client.ConfigGet(t.Context(), "maxmemory").Result()
		if err != nil || config["maxmemory"] != strconv.Itoa(12<<20) {
			t.Errorf("%s server restarted with maxmemory %v, %v; want what it was started with", before, config, err)
		}
	}
}
