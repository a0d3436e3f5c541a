package tiered

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// LogOfRedis has what go-redis itself logs go to a logger: at level WARN, each kind of line at most
// every 10 s, with how many were left out. By itself go-redis writes lines of its own form to
// standard error, many of them while a server is away, which say nothing that the limiter's own
// lines do not.
//
// Call it once, when the program starts and before it makes clients. go-redis has one logger for the
// whole process and does not tell which: so this is for programs, who know that nothing else in
// them has set one (redis.SetLogger, logging.Disable), and [Open] does not do it by itself. A nil
// logger discards the lines.
func LogOfRedis(logger *slog.Logger) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	redis.SetLogger(redisLog{newQuietLog(logger)})
}

// redisLog is a logger as go-redis wants it. The kind of a line is its format.
type redisLog struct{ *quietLog }

func (l redisLog) Printf(_ context.Context, format string, args ...any) {
	l.Warn(format, "the Redis client reports a problem", "message", fmt.Sprintf(format, args...))
}
