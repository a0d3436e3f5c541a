package tiered

import (
	"context"
	"errors"

	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// settlement corrects the charge of a hold to the units that were used.
type settlement struct {
	*Hold
	used       int64
	sent       bool          // it was sent without an answer, and may have been made
	recorded   bool          // the settlement is in this instance's ledger
	recordedAt int64         // when it was recorded, in the limiter's time
	recordedIn uint32        // the generation of Redis's data at that time
	shard      *outage.Shard // the key's shard when the settlement began to wait
}

// cancelling returns a settlement that cancels a hold that no caller knows about.
func (r *Rule) cancelling(key *callKey, units int64) settlement {
	return settlement{Hold: &Hold{rule: r, key: key.kept(), units: units, granted: r.limiter.now()}}
}

// settle makes a settlement now or, if Redis does not answer, later in the background.
func (l *Limiter) settle(ctx context.Context, s settlement) {
	switch {
	case s.used < s.units:
		l.record(&s) // before asking Redis, so that the ledger may have less than Redis, but never more
	case s.used > s.units && s.isInRedis() && l.chargeLost(&s):
		// The units beyond those held are charged like those that Redis has lost, which happens once. If the
		// settlement charged them, and its reply were lost, nobody would know whether Redis still had the hold.
		q := s.rule.requestAbout(&s.key)
		l.shardOf(&s.key).Used(&q, s.used-s.units, false)
		s.used = s.units
	}
	made, panicked := false, false
	defer func() { // a hook of the client may panic, and the program may recover
		if !made {
			s.sent = s.sent || panicked
			l.record(&s)
			l.holds.put(l, s)
		}
	}()
	if s.settledFrom <= l.now() {
		panicked = true
		made = l.send(ctx, &s)
		panicked = false
	}
}

// record corrects this instance's ledger to the units that were used.
func (l *Limiter) record(s *settlement) {
	if s.recorded {
		return
	}
	s.recorded, s.recordedAt = true, l.now()
	q, shard := s.rule.requestAbout(&s.key), l.shardOf(&s.key)
	switch {
	case s.used > s.units:
		shard.Used(&q, s.used-s.units, s.isInRedis()) // if not, Redis is charged later, as for all units granted without it
	case s.used < s.units && l.now()-s.granted < int64(s.rule.limit.Window()):
		shard.Returned(&q, s.granted, s.units-s.used, !s.isInRedis())
	}
	s.recordedIn = l.shards.Ledger.Generation() // read last, as in newHold
}

// send asks Redis to make a settlement. It returns false if the settlement must be sent again.
func (l *Limiter) send(ctx context.Context, s *settlement) bool {
	shard := l.shardOf(&s.key)
	if !shard.Breaker.Closed() {
		return false
	}
	reply, err := shard.Decide(ctx, remote.Entry{
		Key: string(s.key.name), Rule: s.rule.inOutage.Latest().Encoded, Operation: lua.Settle, Cost: s.used,
		Hold: &s.key.hold.terms,
	})
	switch {
	case errors.Is(err, remote.ErrUnreadable):
		l.shards.Unreadable(err)
		s.rule.counters.holds.lost.Add(1)
		l.record(s)
		return true
	case err != nil:
		s.sent = s.sent || outage.MayBeCharged(err)
		return false
	}
	s.rule.counters.holds.settled.Add(1)
	switch {
	case reply.Status == remote.Allowed && reply.Fitted > 1:
		s.rule.counters.holds.reclaimed.Add(1)
	case reply.Status == remote.Allowed:
	case s.sent: // it was made, or Redis has lost the hold
		l.chargeLost(s)
	default:
		l.unknownHold(ctx, s)
	}
	l.record(s)
	s.rule.unitsCameBack(&s.key)
	return true
}

// chargeLost has this instance charge again what Redis has lost of the hold's key, if a loss was noticed since the
// hold was granted or its settlement was recorded: the settlement may be this instance's last use of the key. It
// reports whether that includes the units held.
func (l *Limiter) chargeLost(s *settlement) bool {
	q := s.rule.requestAbout(&s.key)
	if s.recorded {
		l.shards.ChargeAgain(&q, s.recordedAt, s.recordedIn)
	}
	return l.shards.ChargeAgain(&q, s.granted, s.grantedIn)
}

// unknownHold settles a hold that Redis does not know although it cannot have been settled before. Either
// the key was reset, or Redis has lost its data, or the hold was given back long ago, or Redis never made the
// hold. Used units beyond those that may still be charged are charged as by [Rule.ChargeUsed]: now, whether or
// not they fit, and at most once.
//
// If it was noticed that Redis has lost its data, this instance charges all again that the key has on record. So the
// estimate was not given back. And if the settlement had waited for Redis, the record has the rest as well. The
// settlement may be this instance's last use of the key, so it must see to it.
func (l *Limiter) unknownHold(ctx context.Context, s *settlement) {
	if !s.unknown {
		s.rule.counters.holds.lost.Add(1)
	}
	q, shard, window := s.rule.requestAbout(&s.key), l.shardOf(&s.key), int64(s.rule.limit.Window())
	more, now := s.used-s.units, l.now()
	recorded := s.recorded && more > 0 // the units beyond those held are on record
	if recorded && l.shards.ChargeAgain(&q, s.recordedAt, s.recordedIn) {
		return
	}
	again := l.shards.ChargeAgain(&q, s.granted, s.grantedIn)
	inWindow, ended := now-s.granted < window, now > s.ends.Load()
	givenBack := ended && s.rule.config.unsettled == GiveBack
	neverMade := s.unknown && !ended && inWindow // the policy granted the hold, and Redis can no longer charge it
	if (givenBack || neverMade) && !again {
		if more = s.used; inWindow {
			// Take these units out of the ledger, because chargeUsed records them again.
			shard.Returned(&q, s.granted, min(s.used, s.units), false)
		}
	}
	if more <= 0 {
		return
	}
	if recorded && now-s.recordedAt < window { // take these out, too
		shard.Returned(&q, s.recordedAt, s.used-s.units, false)
	}
	_ = s.rule.chargeUsed(ctx, &s.key, more) // fails only if the limiter is closed
	s.recorded = true                        // by chargeUsed
}

// unitsCameBack forgets a remembered denial and wakes waiters, because units may be free now.
func (r *Rule) unitsCameBack(key *callKey) {
	r.forgetDenial(key.hash)
	r.limiter.lines.release(r.heldKey(key))
}
