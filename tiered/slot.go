package tiered

import (
	"context"
	"sync/atomic"

	"github.com/tierlimit/tierlimit/local"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// Slot represents units of a limit of [limit.Concurrent] that are held until [Slot.Release]. Its
// methods are safe for concurrent use. They may be called on a nil Slot, which is not held.
type Slot struct {
	rule     *Rule
	key      callKey
	local    local.Slot[*Rule]
	dry      bool // granted only because the rule is on a dry run: nothing is held
	released atomic.Bool
}

// Release gives the units back. It returns once Redis has answered, or at the limiter's deadline; if
// Redis cannot be reached, or the slot is about to expire, Redis is told in the background. Releasing
// a slot again, or releasing a lost slot, does nothing.
func (s *Slot) Release() {
	if s == nil || s.dry || s.released.Swap(true) {
		return
	}
	r := s.rule
	l := r.limiter
	shard := l.shardOf(&s.key)
	now := l.now()
	h, units, told := s.local.Release(now, l.unsettledUntil(now), shard.Breaker.Closed())
	if told {
		reply, err := shard.Decide(context.Background(), remote.Entry{
			Key: string(s.key.inRedis()), Rule: r.encoded, Operation: lua.Refund, Cost: units,
		})
		switch now := l.now(); {
		case err != nil:
			h.Unknown(now, l.unsettledUntil(now))
		case reply.Granted != units: // Redis had fewer: it has lost data
			h.Unknown(now, now)
		default:
			h.Left(now, reply.Remaining)
		}
	}
	r.unitsCameBack(&s.key)
}

// Held reports whether the slot is still held, that is, neither released nor expired. It costs no
// more than reading a clock, and is correct even directly after this process was paused, before any
// timer has fired. Call it before each step that must not be done without the slot.
func (s *Slot) Held() bool {
	switch {
	case s == nil:
		return false
	case s.dry:
		return true
	}
	return s.local.Held(s.rule.limiter.now())
}

// closed is a closed channel, for slots that have ended.
var closed = func() <-chan struct{} { c := make(chan struct{}); close(c); return c }()

// Lost returns a channel that is closed when the slot is lost or released. It may be closed some
// milliseconds after Held has become false.
func (s *Slot) Lost() <-chan struct{} {
	switch {
	case s == nil:
		return closed
	case s.dry:
		return nil
	}
	return s.local.Ended()
}
