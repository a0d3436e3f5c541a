package httplimit

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// mistakes logs a line a second at most: clients must not be able to fill a log.
type mistakes struct {
	logger *slog.Logger
	start  time.Time
	next   atomic.Int64 // when a line may be logged again, since start
}

func newMistakes() *mistakes { return &mistakes{logger: slog.Default(), start: time.Now()} }

func (m *mistakes) may() bool {
	now, next := int64(time.Since(m.start)), m.next.Load()
	return now >= next && m.next.CompareAndSwap(next, now+int64(time.Second))
}

func (m *mistakes) error(message string, args ...any) {
	if m.may() {
		m.logger.Error("httplimit: "+message, args...)
	}
}

func (m *mistakes) warn(message string, args ...any) {
	if m.may() {
		m.logger.Warn("httplimit: "+message, args...)
	}
}
