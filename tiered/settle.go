package tiered

import (
	"context"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local/ledger"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// isSettling reports whether decisions of the rule need this instance's agreement, with
// Redis there.
func (r *Rule) isSettling(s *shard) bool {
	return r.config.policy != Allow && r.isUncounted(s)
}

// isUncounted reports whether Redis may not know of all grants of the rule.
func (r *Rule) isUncounted(s *shard) bool {
	e := s.episode.Load()
	return e != nil && e.settles(r.name, r.limit.Window(), r.limiter.now())
}

// learn records in the ledger what Redis granted, and how much was free.
func (l *Limiter) learn(r *Rule, key *callKey, reply *remote.Reply) {
	s := l.shardOf(key)
	a, now := r.account(key), l.now()
	known := ledger.Known{Granted: reply.Granted}
	if !r.isUncounted(s) { // or else others' grants are missing
		known.Free, known.Capacity, known.Sliding = reply.Remaining, r.capacity, r.sliding
	}
	if l.ledger.Learn(&a, now, known) {
		s.suspect()
	}
}

// decideSettling decides while Redis does not know of all grants (law 11): both it
// and this instance's share of the limit must agree. The ledger is asked first, since
// that takes no trip.
func (r *Rule) decideSettling(ctx context.Context, s *shard, key *callKey, cost int64, operation int) (limit.Decision, error) {
	l := r.limiter
	a := r.account(key)
	least, most := cost, cost
	switch operation {
	case lua.TakeUpTo:
		least = 1
	case lua.Peek:
		most = 0
	}
	own := l.ledger.Reserve(&a, s.outage(), l.now(), least, most)
	if own.Granted < min(least, most) || own.Free < least && operation == lua.Peek {
		d := r.decision(s.tierSettling())
		d.ResetAfter = r.limit.Window()
		granted(&d, own)
		return d, nil
	}
	if operation == lua.TakeUpTo {
		cost = own.Granted
	}
	reply, err := s.batcher.Decide(ctx, r.entry(key, cost, operation))
	// What Redis granted has been recorded by now, and what is granted without it will be.
	l.ledger.Undo(&a, l.now(), own.Granted, false)
	switch {
	case err == nil:
		d := r.fromRedis(&reply, cost, operation)
		d.Remaining = min(d.Remaining, own.Free)
		return d, nil
	case !l.outage(err):
		return limit.Decision{}, err
	}
	return r.fallback(s, l.now(), key, cost, operation, err), nil
}

// tierSettling is who decides if this instance's share stands in the way.
func (s *shard) tierSettling() limit.Tier {
	if e := s.episode.Load(); e != nil && e.load.Load() {
		return limit.TierOverload
	}
	return limit.TierFallback
}

// settleAtLeast is for how long an episode goes on after Redis is back: others who come
// back must have been heard of, though they still count as members from before.
const settleAtLeast = time.Second

// settle ends an episode if it is over: when a beat that said this instance has charged
// all it granted found no other that has not, and all there were, or none more within
// the time for which they count as members; but for rules of which somebody has lost
// records. Or else after the longest window.
func (s *shard) settle(heard remote.Heard) {
	e := s.episode.Load()
	if e == nil {
		return
	}
	back, now := e.back.Load(), s.limiter.now()
	all := heard.Unsettled == 0 && (heard.Size >= s.fleetBefore(e) || now-back >= int64(fleetTTL))
	settled := back != 0 && now-back >= int64(settleAtLeast) && all && !e.forgotten.Load()
	e.heardOf(heard.Lost, now)
	lost := e.losses().any(now)
	switch {
	case settled && !lost, e.isOver(time.Duration(s.limiter.longest.Load()), now):
		if s.end(e) {
			s.changed(Healthy)
		}
	case settled && s.endBut(e):
		s.warn("lost records", "more keys were granted something without Redis than LedgerKeys has room for; rules of which records were lost go on settling for their window",
			"rules", e.losses().rules())
	}
}

// settlesSoon reports whether an episode may end before a window has passed, if the
// instances hear of each other.
func (s *shard) settlesSoon() bool {
	e := s.uncharged()
	return e != nil && !e.forgotten.Load()
}
