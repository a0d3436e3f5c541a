package admission

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// Log logs a line a second at most: clients must not be able to fill a log.
type Log struct {
	Logger *slog.Logger // may be replaced before the first line
	prefix string
	start  time.Time
	next   atomic.Int64 // when a line may be logged again, since start
}

// NewLog returns a log to the default logger, whose lines begin with a prefix.
func NewLog(prefix string) *Log {
	return &Log{Logger: slog.Default(), prefix: prefix, start: time.Now()}
}

func (l *Log) may() bool {
	now, next := int64(time.Since(l.start)), l.next.Load()
	return now >= next && l.next.CompareAndSwap(next, now+int64(time.Second))
}

// Error logs a mistake.
func (l *Log) Error(message string, args ...any) {
	if l.may() {
		l.Logger.Error(l.prefix+message, args...)
	}
}

// Warn logs what went wrong and is no mistake.
func (l *Log) Warn(message string, args ...any) {
	if l.may() {
		l.Logger.Warn(l.prefix+message, args...)
	}
}
