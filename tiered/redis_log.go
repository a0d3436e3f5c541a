package tiered

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/option"
)

// LogOfRedis sends go-redis's own log lines to a logger, at level WARN, or at level INFO if they only say
// which Sentinels and which master a client has found. It logs each kind of line at most every 10 s, with
// the number of lines left out. By default go-redis writes the lines to standard error in its own format.
// They are many while a server is lost, and have no information that the limiter's own lines do not have. A
// nil logger discards the lines.
//
// [Open] and [OpenURL] do the same with the limiter's logger. Use LogOfRedis in a program that uses
// [New], or that wants another logger for these lines; after LogOfRedis was called, Open does not change
// go-redis's logger. Call it when the program starts, before it makes clients: go-redis has one logger
// for the whole process, including the program's own clients.
func LogOfRedis(logger *slog.Logger) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	sendLogOfRedis(newQuietLog(logger))
}

func sendLogOfRedis(log *quietLog) {
	redisLines.taken.Store(true)
	redis.SetLogger(&bridge{rest: log})
}

// KeepLogOfRedis keeps [Open] and [OpenURL] from changing go-redis's logger, which is shared by
// the whole process. Use it if the program has set a logger of its own before (redis.SetLogger,
// logging.Disable), or wants go-redis's own lines on standard error. A logger that is set after the first
// limiter was opened stays in any case.
func KeepLogOfRedis() Option {
	return option.Always(func(c *config) { c.keepRedisLog = true })
}

// redisLines receives go-redis's lines in this process from the first Open on.
var redisLines bridge

// bridge sends go-redis's lines to the logger of the first-opened limiter among those still open; after
// Close a limiter's logger gets no line. While no limiter is open, other clients of the program may still
// report something, and their lines go to the process's logger.
type bridge struct {
	taken atomic.Bool // Open or LogOfRedis has set go-redis's logger

	mu   sync.Mutex  // guards the rest
	open []*quietLog // of open limiters, in the order in which they were opened
	rest *quietLog   // used while no limiter is open
}

// join sends lines to a limiter's logger, until leave.
func (b *bridge) join(logger *slog.Logger) *quietLog {
	b.mu.Lock()
	defer b.mu.Unlock()
	log := newQuietLog(logger)
	b.open = append(b.open, log)
	if !b.taken.Swap(true) {
		redis.SetLogger(b)
	}
	return log
}

// leave undoes join. log is nil for a limiter that has not joined.
func (b *bridge) leave(log *quietLog) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.open, log); i >= 0 {
		b.open = slices.Delete(b.open, i, i+1)
		b.rest = newQuietLog(slog.Default())
	}
}

// news has the beginnings of lines that report no problem: a client of Sentinel writes them whenever it starts.
var news = []string{"sentinel: selected addr=", "sentinel: new master=", "sentinel: discovered new sentinel="}

// Printf implements go-redis's logger. The kind of a line is its format.
func (b *bridge) Printf(_ context.Context, format string, args ...any) {
	b.mu.Lock()
	log := b.rest
	if len(b.open) > 0 {
		log = b.open[0]
	}
	b.mu.Unlock()
	message := fmt.Sprintf(format, args...)
	if slices.ContainsFunc(news, func(beginning string) bool { return strings.HasPrefix(format, beginning) }) {
		log.Info(format, "the Redis client reports", "message", message)
		return
	}
	log.Warn(format, "the Redis client reports a problem", "message", message)
}
