package remote

import (
	"errors"
	"fmt"
	"time"

	"github.com/tierlimit/tierlimit/limit"
)

// shed counts calls that found no room. Callers who ask again as soon as they are shed have
// the processor until it is taken from them, 10 ms each, and nobody else gets on. When so many
// are shed that this is what happens, they learn of it a little later: tens of such pauses are
// enough for all others to be served again. It is guarded by the batcher's lock.
type shed struct {
	calls int
	since int64 // local time
}

const (
	// mostShed within so many µs are shed at once: half a million a second, more than come on
	// a few cores from callers who do something else, too.
	mostShed   = 5000
	shedWithin = 10_000
	shedPause  = 5 * time.Millisecond
)

// Both are made once: under overload most calls end with one.
var (
	errNoRoom = fmt.Errorf("%w: more decisions are waiting than can be made before their deadlines; see tiered.QueueLength, or ask for less", limit.ErrOverloaded)
	errPause  = errors.New("no room, after a pause")
)

// one counts a call that is shed, and returns its error.
func (s *shed) one(now int64) error {
	if now-s.since > shedWithin {
		*s = shed{since: now}
	}
	if s.calls++; s.calls > mostShed {
		return errPause
	}
	return errNoRoom
}

// shed is what the caller of a call that was not let in is told. The lock is not held.
func (c *call) shed(err error) error {
	if err != errPause {
		return err
	}
	time.Sleep(min(shedPause, microseconds(c.deadline-c.asked)))
	return errNoRoom
}
