package tiered

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"time"
)

const (
	// quietEvery is the shortest time between two log lines about the same kind of event.
	quietEvery = 10 * time.Second
	// maxUnwritten is the largest number of lines that wait for a logger that does not return.
	maxUnwritten = 64
)

// quietLog logs each kind of event at most once per quietEvery and says how many events it left out.
//
// The logger is called in a goroutine that ends when no line is left. So a logger that blocks, as one that writes to a
// pipe which nobody reads, delays neither decisions nor the return of Redis (law 7).
type quietLog struct {
	logger *slog.Logger

	mu        sync.Mutex // guards the rest
	seen      map[string]quietEvent
	unwritten []slog.Record
	written   chan struct{} // closed when no line is left; nil if none is
}

type quietEvent struct {
	last    time.Time
	leftOut int
}

func newQuietLog(logger *slog.Logger) *quietLog {
	return &quietLog{logger: logger, seen: make(map[string]quietEvent)}
}

// Warn and Info log an event of a kind. They never wait for the logger.
func (q *quietLog) Warn(kind, message string, args ...any) {
	q.log(slog.LevelWarn, kind, message, args)
}

func (q *quietLog) Info(kind, message string, args ...any) {
	q.log(slog.LevelInfo, kind, message, args)
}

func (q *quietLog) log(level slog.Level, kind, message string, args []any) {
	if !q.logger.Enabled(context.Background(), level) {
		return
	}
	var caller [1]uintptr
	runtime.Callers(3, caller[:]) // of Warn or Info
	now := time.Now()

	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.seen[kind]
	if now.Sub(e.last) < quietEvery || len(q.unwritten) == maxUnwritten {
		e.leftOut++
		q.seen[kind] = e
		return
	}
	q.seen[kind] = quietEvent{last: now}
	line := slog.NewRecord(now, level, "tierlimit: "+message, caller[0])
	line.Add(args...)
	if e.leftOut > 0 {
		line.Add("left_out", e.leftOut)
	}
	q.unwritten = append(q.unwritten, line)
	if q.written == nil {
		q.written = make(chan struct{})
		go q.write()
	}
}

// write passes lines to the logger until none is left.
func (q *quietLog) write() {
	for {
		q.mu.Lock()
		if len(q.unwritten) == 0 {
			close(q.written)
			q.written = nil
			q.mu.Unlock()
			return
		}
		line := q.unwritten[0]
		q.unwritten = q.unwritten[1:]
		q.mu.Unlock()
		_ = q.logger.Handler().Handle(context.Background(), line) // as slog.Logger does
	}
}

// flush waits until all lines have been written, for at most the given time. q may be nil.
func (q *quietLog) flush(within time.Duration) {
	if q == nil {
		return
	}
	q.mu.Lock()
	written := q.written
	q.mu.Unlock()
	if written == nil {
		return
	}
	select {
	case <-written:
	case <-time.After(within):
	}
}
