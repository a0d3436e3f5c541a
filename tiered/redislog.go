package tiered

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// LogOfRedis has what go-redis itself logs go to a logger: at level WARN, each kind of line at most
// every 10 s, with how many were left out. By itself go-redis writes lines of its own form to
// standard error, many of them while a server is away, which say nothing that the limiter's own
// lines do not. A nil logger discards the lines.
//
// [Open] and [OpenURL] do so by themselves, with the limiter's logger. LogOfRedis is for programs
// that use [New], or want another logger for these lines; once it was called, Open leaves the lines
// alone. Call it when the program starts and before it makes clients: go-redis has one logger for
// the whole process, for the program's own clients too.
func LogOfRedis(logger *slog.Logger) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	redisLines.choose()
	redis.SetLogger(redisLog{newQuietLog(logger)})
}

// KeepLogOfRedis has [Open] and [OpenURL] leave go-redis's logger, which is one for the whole
// process, as it is. Set it if the program has set one of its own before (redis.SetLogger,
// logging.Disable), or wants go-redis's own lines on standard error. A logger that is set
// after the first limiter was opened stays in any case.
func KeepLogOfRedis() Option {
	return func(c *config) error {
		c.keepRedisLog = true
		return nil
	}
}

// redisLog is a logger as go-redis wants it. The kind of a line is its format.
type redisLog struct{ *quietLog }

func (l redisLog) Printf(_ context.Context, format string, args ...any) {
	l.Warn(format, "the Redis client reports a problem", "message", fmt.Sprintf(format, args...))
}

// redisLines is what go-redis logs in this process, once Open has taken it over.
var redisLines bridge

// bridge sends go-redis's lines to the logger of the limiter that was opened first of those still
// open: after Close a limiter's logger gets no line. With none open, other clients of the program
// may still report something, which goes to the process's logger.
type bridge struct {
	mu    sync.Mutex
	taken bool        // go-redis's logger is set, by Open or by LogOfRedis: it is not set again
	open  []*quietLog // of limiters
	rest  *quietLog   // while none is open
}

// choose notes that the program has decided where the lines go.
func (b *bridge) choose() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken = true
}

// join has lines go to a limiter's logger, until leave.
func (b *bridge) join(logger *slog.Logger) *quietLog {
	b.mu.Lock()
	defer b.mu.Unlock()
	log := newQuietLog(logger)
	b.open = append(b.open, log)
	if !b.taken {
		b.taken = true
		redis.SetLogger(b)
	}
	return log
}

// leave ends what join began. It takes nil from those who have not joined.
func (b *bridge) leave(log *quietLog) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.open, log); i >= 0 {
		b.open = slices.Delete(b.open, i, i+1)
		b.rest = newQuietLog(slog.Default())
	}
}

// Printf is go-redis's.
func (b *bridge) Printf(ctx context.Context, format string, args ...any) {
	b.mu.Lock()
	log := b.rest
	if len(b.open) > 0 {
		log = b.open[0]
	}
	b.mu.Unlock()
	redisLog{log}.Printf(ctx, format, args...)
}
