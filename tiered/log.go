package tiered

import (
	"log/slog"
	"sync"
	"time"
)

// quietEvery is the shortest time between two log lines about the same kind of event.
const quietEvery = 10 * time.Second

// quietLog logs each kind of event at most once per quietEvery and says how many events it left out. It
// is used outside the path of decisions, or for events that should never happen.
type quietLog struct {
	logger *slog.Logger

	mu   sync.Mutex // guards seen
	seen map[string]quietEvent
}

type quietEvent struct {
	last    time.Time
	leftOut int
}

func newQuietLog(logger *slog.Logger) *quietLog {
	return &quietLog{logger: logger, seen: make(map[string]quietEvent)}
}

// Warn and Info log an event of a kind.
func (q *quietLog) Warn(kind, message string, args ...any) {
	if leftOut, ok := q.pass(kind); ok {
		q.logger.Warn("tierlimit: "+message, append(args, leftOut...)...)
	}
}

func (q *quietLog) Info(kind, message string, args ...any) {
	if leftOut, ok := q.pass(kind); ok {
		q.logger.Info("tierlimit: "+message, append(args, leftOut...)...)
	}
}

func (q *quietLog) pass(kind string) (leftOut []any, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e, now := q.seen[kind], time.Now()
	if now.Sub(e.last) < quietEvery {
		q.seen[kind] = quietEvent{e.last, e.leftOut + 1}
		return nil, false
	}
	if e.leftOut > 0 {
		leftOut = []any{"left_out", e.leftOut}
	}
	q.seen[kind] = quietEvent{last: now}
	return leftOut, true
}
