package standin

import (
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// expiry lets keys expire. miniredis's keys expire only when its FastForward is called, and it
// then subtracts that time from the life of every key, even of one that was written a moment before. So
// keys are given the time that will be subtracted too much, and never expire early (law 8).
type expiry struct {
	redis *miniredis.Miniredis
	now   func() time.Time
	start time.Time
	swept atomic.Int64 // time from start to the last sweep, in nanoseconds
}

func newExpiry(redis *miniredis.Miniredis, now func() time.Time) *expiry {
	return &expiry{redis: redis, now: now, start: now()}
}

// sweep removes the keys whose life has ended.
func (e *expiry) sweep() {
	passed := e.now().Sub(e.start)
	e.redis.FastForward(passed - time.Duration(e.swept.Load()))
	e.forgetVersions()
	// The time is stored last, so that a key that is written in the meantime lives longer rather than
	// shorter.
	e.swept.Store(int64(passed))
}

// maxVersions is the number of versions of keys that miniredis keeps.
const maxVersions = 10_000

// forgetVersions has miniredis forget the versions of keys. It keeps one for each key that there ever was, without end,
// for WATCH, which the limiter does not use.
func (e *expiry) forgetVersions() {
	db := e.redis.DB(0)
	field := reflect.ValueOf(db).Elem().FieldByName("keyVersion")
	if !field.IsValid() || field.Type() != reflect.TypeFor[map[string]uint]() {
		return // a test fails if another version of miniredis has no such field
	}
	e.redis.Lock()
	defer e.redis.Unlock()
	if versions := (*map[string]uint)(field.Addr().UnsafePointer()); len(*versions) > maxVersions {
		*versions = make(map[string]uint)
	}
}

// prolong adds the time since the last sweep to the life that a command gives to a key. It changes args
// in place, because miniredis executes the same slice.
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

// add prolongs a life. It leaves a life that is not a number above zero to miniredis, which reports an
// error or deletes the key.
func (e *expiry) add(life *string, unit time.Duration) {
	n, err := strconv.ParseInt(*life, 10, 64)
	if err != nil || n <= 0 {
		return
	}
	since := e.now().Sub(e.start) - time.Duration(e.swept.Load())
	*life = strconv.FormatInt(n+int64((since+unit-1)/unit), 10)
}
