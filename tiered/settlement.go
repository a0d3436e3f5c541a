package tiered

import (
	"context"
	"errors"

	"github.com/tierlimit/tierlimit/breaker"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// settlement is what a hold took in the end.
type settlement struct {
	rule       *Rule
	key        callKey
	held, used int64
	granted    int64 // the limiter's time of the hold
	ends       int64 // and of its end
	local      bool  // the units were granted without Redis, which knows nothing of the hold
	unknown    bool  // they were granted without Redis, which may know of it all the same
	sent       bool  // it may have been made, or not, and Redis have said so to nobody
	recorded   bool  // in this instance's own record
	after      int64 // the limiter's time before which it must not be sent; 0: at once
}

// cancelling is the settlement of a hold that nobody has.
func (r *Rule) cancelling(key *callKey, units int64) settlement {
	return settlement{rule: r, key: key.kept(), held: units, granted: r.limiter.now()}
}

// settle makes a settlement now, or if that cannot be, later.
func (l *Limiter) settle(ctx context.Context, s settlement) {
	if !s.recorded && s.used < s.held {
		l.record(&s) // before Redis is told: this instance's own record may say less than Redis, never more
	}
	if l.send(ctx, &s) {
		return
	}
	l.record(&s)
	l.holds.put(l, s)
}

// record makes this instance's own record say what was used.
func (l *Limiter) record(s *settlement) {
	if s.recorded {
		return
	}
	s.recorded = true
	q, shard := s.rule.inOutageOf(&s.key, s.used, lua.Settle), l.shardOf(&s.key)
	switch {
	case s.used > s.held:
		shard.Used(&q, s.used-s.held, !s.local) // what is local Redis is told with all that was granted without it
	case s.used < s.held && l.now()-s.granted < int64(s.rule.limit.Window()):
		shard.Returned(&q, s.held-s.used, s.local)
	}
}

// settleLocally makes the settlement of a hold that Redis does not know of.
func (l *Limiter) settleLocally(s *settlement) {
	l.record(s)
	s.rule.metrics.holds.settled.Add(1)
	s.rule.unitsCameBack(&s.key)
}

// send asks Redis to make a settlement. It reports false if it is to be sent again.
func (l *Limiter) send(ctx context.Context, s *settlement) bool {
	shard := l.shardOf(&s.key)
	if !shard.Breaker.Closed() {
		return false
	}
	reply, err := shard.Decide(ctx, remote.Entry{
		Key: string(s.key.name), Rule: s.rule.encoded, Operation: lua.Settle, Cost: s.used,
		Hold: &s.key.hold.terms,
	})
	switch {
	case errors.Is(err, remote.ErrUnreadable):
		l.outage(err) // says so
		s.rule.metrics.holds.lost.Add(1)
		l.record(s)
		return true
	case err != nil:
		s.sent = s.sent || !errors.Is(err, breaker.ErrOpen) && remote.MayHaveRun(err)
		return false
	}
	s.rule.metrics.holds.settled.Add(1)
	if reply.Status != remote.Allowed && !s.sent {
		l.unknownHold(s)
	} else if reply.Fitted > 1 {
		s.rule.metrics.holds.reclaimed.Add(1)
	}
	l.record(s)
	s.rule.unitsCameBack(&s.key)
	return true
}

// unknownHold is for a hold that Redis does not know of although nobody can have settled it: the
// key was reset, or Redis has lost its memory, or it was given back long ago. What was used
// beyond what may still be charged is charged like units that were granted without Redis: once.
func (l *Limiter) unknownHold(s *settlement) {
	if !s.unknown {
		s.rule.metrics.holds.lost.Add(1)
	}
	more := s.used - s.held
	if s.rule.config.unsettled == GiveBack && l.now() > s.ends {
		more = s.used
	}
	if more <= 0 {
		return
	}
	q := s.rule.inOutageOf(&s.key, more, lua.Settle)
	l.shardOf(&s.key).Used(&q, more, false)
	if s.used > s.held {
		s.recorded = true // with it
	}
}

// unitsCameBack lets others have what may be free now.
func (r *Rule) unitsCameBack(key *callKey) {
	r.forgetDenial(key.hash)
	r.limiter.lines.release(r.name, key.inRedis())
}
