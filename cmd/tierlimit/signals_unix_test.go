//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// A closed output pipe or a signal ends the command, and nothing is left in Redis.
func TestSignals(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, end := range map[string]func(*exec.Cmd, *os.File) error{
		"closed pipe": func(_ *exec.Cmd, stdout *os.File) error { return stdout.Close() },
		"SIGTERM":     func(cmd *exec.Cmd, _ *os.File) error { return cmd.Process.Signal(syscall.SIGTERM) },
		"SIGHUP":      func(cmd *exec.Cmd, _ *os.File) error { return cmd.Process.Signal(syscall.SIGHUP) },
		"SIGINT":      func(cmd *exec.Cmd, _ *os.File) error { return cmd.Process.Signal(os.Interrupt) },
	} {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		var stderr strings.Builder
		cmd := exec.Command(os.Args[0], "replay", "-redis", server.URL())
		cmd.Env = append(os.Environ(), asCommand+"=1")
		cmd.Stdout, cmd.Stderr = write, &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_ = write.Close()
		lines := bufio.NewReader(read)
		for range 5 { // up to the head of the table
			if line, err := lines.ReadString('\n'); err != nil {
				t.Fatalf("%s: %q, %v\n%s", name, line, err, stderr.String())
			}
		}
		if err := end(cmd, read); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
			t.Errorf("%s: %v\n%s", name, err, stderr.String())
		}
		if want := name != "closed pipe"; strings.Contains(stderr.String(), "interrupted") != want || strings.Contains(stderr.String(), "broken") {
			t.Errorf("%s: it says %s", name, stderr.String())
		}
		_ = read.Close()
		if keys := server.Client(t).Keys(context.Background(), "*").Val(); len(keys) > 0 {
			t.Errorf("%s: left behind in Redis: %d keys, such as %q", name, len(keys), keys[0])
		}
	}
}

// A command that waits for the writer of a named pipe can be interrupted.
func TestInterruptedWhileOpeningANamedPipe(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, interrupt)
	var out strings.Builder
	if err := execute(ctx, []string{"replay", pipe}, strings.NewReader(""), &out, &out); !errors.Is(err, context.Canceled) {
		t.Errorf("%v\n%s", err, out.String())
	}
}
