package tiered

import (
	"context"
	"strings"
	"sync"

	"github.com/tierlimit/tierlimit/breaker"
	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// question is one request on its way through the tiers. The key's hash and shard are computed once.
type question struct {
	rule      *Rule
	key       callKey
	cost      int64
	operation int           // lua.Take, lua.TakeUpTo or lua.Peek
	found     *outage.Shard // nil until shard is called
}

func (r *Rule) ask(key string, cost int64, operation int) question {
	return question{rule: r, key: r.limiter.key(key), cost: cost, operation: operation}
}

// decide decides a single request, and ends the question with the result.
func (r *Rule) decide(ctx context.Context, key string, cost int64, operation int) (d limit.Decision, err error) {
	q := r.ask(key, cost, operation)
	d, err = q.decide(ctx)
	err = q.end(&d, err)
	return d, err
}

// shard returns the shard of the key. It is the same for the whole question, even if the key's slot moves
// meanwhile.
func (q *question) shard() *outage.Shard {
	if q.found == nil {
		q.found = q.rule.limiter.shardOf(&q.key)
	}
	return q.found
}

// entry returns the entry that asks Redis.
func (q *question) entry() (e remote.Entry) {
	q.fill(&e)
	return e
}

// fill turns a zero entry into one that asks Redis.
func (q *question) fill(e *remote.Entry) {
	e.Key, e.Hash, e.Rule, e.Cost, e.Operation = string(q.key.inRedis()), q.key.hash, q.rule.encoded, q.cost, q.operation
	q.key.hold.ask(e)
}

// inOutage returns the question in the form that the shard takes.
func (q *question) inOutage() outage.Question {
	asked := q.rule.inOutageOf(&q.key)
	asked.Cost, asked.Operation = q.cost, q.operation
	return asked
}

// needed returns how many units must be free for anything to be granted.
func (q *question) needed() int64 {
	if q.operation == lua.TakeUpTo {
		return 1
	}
	return q.cost
}

// inMemory decides by a lease or by a denial that this process remembers, if there is one.
func (q *question) inMemory(now int64) (limit.Decision, bool) {
	if q.rule.lease != nil && q.key.hold == nil {
		if d, ok := q.rule.fromLease(q.key.hash, now, q.cost, q.operation); ok {
			return d, true
		}
	}
	return q.rule.remembered(q.key.hash, now, q.needed())
}

// decide takes a question through all tiers.
func (q *question) decide(ctx context.Context) (d limit.Decision, err error) {
	r := q.rule
	if r.slotTTL != 0 && q.operation == lua.Peek {
		_, d, err = q.acquire(ctx, 1)
		return d, err
	}
	if err := r.check(ctx, q.key.said, q.cost); err != nil {
		return limit.Decision{}, err
	}
	now := r.limiter.now()
	if d, ok := q.inMemory(now); ok {
		return d, nil
	}
	s := q.shard()
	if !s.Breaker.Closed() {
		return q.fallback(now, breaker.ErrOpen), nil
	} else if s.Settling(r.inOutage) {
		return q.decideSettling(ctx)
	}
	return q.decideInRedis(ctx, s)
}

// exchange is an entry and the reply to it. Exchanges are reused, because both are large for the stack of
// a goroutine that waits; see [remote.Batcher.DecideInto].
type exchange struct {
	entry remote.Entry
	reply remote.Reply
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// exchange returns an exchange that asks the question. Call release when it is no longer used.
func (q *question) exchange() *exchange {
	x := exchanges.Get().(*exchange)
	q.fill(&x.entry)
	return x
}

func (x *exchange) release() {
	*x = exchange{}
	exchanges.Put(x)
}

// decideInRedis has the master decide. If the master cannot be asked, the outage policy decides.
func (q *question) decideInRedis(ctx context.Context, s *outage.Shard) (d limit.Decision, err error) {
	x := q.exchange()
	err = s.DecideInto(ctx, &x.entry, &x.reply)
	d, err = q.answered(&x.reply, err)
	x.release()
	return d, err
}

// answered decides by Redis's answer, or by the outage policy if there is none.
func (q *question) answered(reply *remote.Reply, err error) (limit.Decision, error) {
	r := q.rule
	switch {
	case err == nil:
		if r.lease != nil && reply.Granted > 0 && q.key.hold == nil {
			r.limiter.leases.Granted(r.lease, q.key.hash, q.key.inRedis(), reply.Granted)
		}
		return r.fromRedis(reply, q.cost, q.operation), nil
	case !r.limiter.outage(err):
		return limit.Decision{}, err
	}
	return q.fallback(r.limiter.now(), err), nil
}

// decideSettling decides while Redis does not know of all grants. Requests that are turned away because
// of overload reserve nothing, and need only a small stack.
func (q *question) decideSettling(ctx context.Context) (d limit.Decision, err error) {
	s := q.shard()
	if s.TurnsAway() {
		return q.fallback(q.rule.limiter.now(), remote.ErrNoRoom), nil
	}
	return q.decideByBoth(ctx, s)
}

// decideByBoth decides by Redis and by this instance's share of the limit. Both must agree (law 11).
func (q *question) decideByBoth(ctx context.Context, s *outage.Shard) (d limit.Decision, err error) {
	asked := q.inOutage()
	own, d, ok := s.Reserve(&asked)
	if !ok {
		s.DelayDenied(ctx)
		return d, nil
	}
	if q.operation == lua.TakeUpTo {
		q.cost = own.Units
	}
	x := q.exchange()
	err = s.DecideInto(ctx, &x.entry, &x.reply)
	s.Release(&asked, own)
	switch {
	case err == nil:
		d = q.rule.fromRedis(&x.reply, q.cost, q.operation)
		d.Remaining = min(d.Remaining, own.Free)
	case q.rule.limiter.outage(err):
		d, err = q.fallback(q.rule.limiter.now(), err), nil
	}
	x.release()
	return d, err
}

// fallback decides without Redis, because asking it failed with err.
func (q *question) fallback(now int64, err error) (d limit.Decision) {
	asked := q.inOutage()
	q.key.hold.decidedWithout(err)
	return q.shard().Without(&asked, now, err)
}

// callKey is the key of a call, with values that are computed from it once. They are computed in the
// caller's goroutine, so that a long key costs only its own caller.
type callKey struct {
	said string
	hash uint64         // hash by which this process remembers the key
	name remote.UserKey // name in Redis, and wherever a key is kept; "" until it is needed
	hold *holding       // nil: units are charged for good
}

func (l *Limiter) key(said string) callKey { return callKey{said: said, hash: l.hasher.Hash(said)} }

// kept returns the key for use beyond the call. It does not keep the original key, which may be long.
func (k *callKey) kept() callKey {
	other := *k
	other.said, other.name = "", remote.UserKey(strings.Clone(string(k.inRedis())))
	return other
}

// inRedis returns the key in the form used in Redis keys. A long key is replaced by a hash.
func (k *callKey) inRedis() remote.UserKey {
	if k.name == "" {
		k.name = remote.NewUserKey(k.said)
	}
	return k.name
}
