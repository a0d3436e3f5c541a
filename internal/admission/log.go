package admission

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// Log logs at most one line per second, because clients must not be able to fill a log.
type Log struct {
	Logger *slog.Logger // may be replaced before the first line
	prefix string
	start  time.Time
	next   atomic.Int64 // time since start at which the next line may be logged
}

// NewLog returns a log that writes to the default logger and begins each line with a prefix.
func NewLog(prefix string) *Log {
	return &Log{Logger: slog.Default(), prefix: prefix, start: time.Now()}
}

func (l *Log) may() bool {
	now, next := int64(time.Since(l.start)), l.next.Load()
	return now >= next && l.next.CompareAndSwap(next, now+int64(time.Second))
}

// Error logs a mistake in the program or its settings.
func (l *Log) Error(message string, args ...any) {
	if l.may() {
		l.Logger.Error(l.prefix+message, args...)
	}
}

// Warn logs a failure that is not a mistake.
func (l *Log) Warn(message string, args ...any) {
	if l.may() {
		l.Logger.Warn(l.prefix+message, args...)
	}
}
