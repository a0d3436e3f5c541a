package tiered

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// blockedHandler is a handler of logs that returns only when its channel is closed.
type blockedHandler struct {
	slog.Handler
	until chan struct{}
}

func (h blockedHandler) Handle(ctx context.Context, line slog.Record) error {
	<-h.until
	return h.Handler.Handle(ctx, line)
}

// A logger that blocks, as one that writes to a pipe which nobody reads, holds up neither decisions nor the return of
// Redis, nor Close.
func TestLaw7ALoggerThatBlocksHoldsNothingUp(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var log lockedBuffer
	handler := blockedHandler{slog.NewTextHandler(&log, nil), make(chan struct{})}
	l := newLimiterOn(t, server.Client(t), "tl", Deadline(50*time.Millisecond), Logger(slog.New(handler)))
	r := newRule(t, l, "r", limit.PerSecond(1000))
	server.Kill()
	redistest.Eventually(t, "Redis counts as lost", func() bool { mustAllow(t, r, "k", 1); return l.State() == Outage })
	server.Restart()
	redistest.Eventually(t, "Redis decides again", func() bool { mustAllow(t, r, "k", 1); return l.State() == Healthy })
	if text := log.String(); text != "" {
		t.Errorf("the logger did not block: %s", text)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	close(handler.until)
	l.log.flush(time.Minute)
	if !strings.Contains(log.String(), "Redis counts as lost") {
		t.Errorf("the log says %q", log.String())
	}
}

// A logger that blocks makes lines be left out, and the next line of their kind says how many.
func TestLinesWaitForALoggerInABoundedQueue(t *testing.T) {
	var log bytes.Buffer
	handler := blockedHandler{slog.NewTextHandler(&log, &slog.HandlerOptions{AddSource: true}), make(chan struct{})}
	q := newQuietLog(slog.New(handler))
	for i := range 2 * maxUnwritten {
		q.Warn(fmt.Sprint("kind ", i), "something happened", "i", i)
	}
	q.flush(0) // does not wait
	close(handler.until)
	q.flush(time.Minute)
	lines := strings.Count(log.String(), "something happened")
	if lines < maxUnwritten || lines > maxUnwritten+1 { // one may be with the handler
		t.Errorf("%d lines", lines)
	}
	if !strings.Contains(log.String(), "log_test.go") {
		t.Errorf("the lines do not say where the event was logged: %s", log.String())
	}
	q.Warn(fmt.Sprint("kind ", 2*maxUnwritten-1), "something happened")
	q.flush(time.Minute)
	if !strings.Contains(log.String(), "left_out=1") {
		t.Errorf("it is not said that a line was left out: %s", log.String())
	}
}
