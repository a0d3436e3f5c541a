package standin

import (
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// expiry lets keys expire: miniredis's do only when it is told how much time has passed, and it
// takes that much from the life of every key, of one that was written a moment before too. So
// keys are given what will be taken from them too much, and never expire early (law 8).
type expiry struct {
	redis *miniredis.Miniredis
	now   func() time.Time
	start time.Time
	swept atomic.Int64 // how long after the start the keys were last looked at, in nanoseconds
}

func newExpiry(redis *miniredis.Miniredis, now func() time.Time) *expiry {
	return &expiry{redis: redis, now: now, start: now()}
}

// sweep removes the keys whose life has ended.
func (e *expiry) sweep() {
	passed := e.now().Sub(e.start)
	e.redis.FastForward(passed - time.Duration(e.swept.Load()))
	// Only now: a key that is written meanwhile lives longer rather than shorter.
	e.swept.Store(int64(passed))
}

// prolong adds to the life that a command gives to a key the time since the last sweep. The
// slice is the one that miniredis goes on to execute.
func (e *expiry) prolong(command string, args []string) {
	switch command {
	case "SET":
		for i := 2; i+1 < len(args); i++ {
			switch strings.ToUpper(args[i]) {
			case "PX", "PXAT":
				e.add(&args[i+1], time.Millisecond)
			case "EX", "EXAT":
				e.add(&args[i+1], time.Second)
			}
		}
	case "PEXPIRE", "PEXPIREAT":
		if len(args) > 1 {
			e.add(&args[1], time.Millisecond)
		}
	case "EXPIRE", "EXPIREAT":
		if len(args) > 1 {
			e.add(&args[1], time.Second)
		}
	}
}

// add leaves what is no number above zero to miniredis, which says so or deletes the key.
func (e *expiry) add(life *string, unit time.Duration) {
	n, err := strconv.ParseInt(*life, 10, 64)
	if err != nil || n <= 0 {
		return
	}
	since := e.now().Sub(e.start) - time.Duration(e.swept.Load())
	*life = strconv.FormatInt(n+int64((since+unit-1)/unit), 10)
}
