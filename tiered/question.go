package tiered

import (
	"context"
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

// begin sets the fields of a zero question.
func (q *question) begin(r *Rule, key string, cost int64, operation int) {
	q.rule, q.cost, q.operation = r, cost, operation
	q.key.original, q.key.hash = key, r.limiter.hasher.Hash(key)
}

// decide decides a single request, and ends the question with the result.
func (r *Rule) decide(ctx context.Context, d *limit.Decision, key string, cost int64, operation int) error {
	var q question
	q.begin(r, key, cost, operation)
	return q.end(d, q.decide(ctx, d))
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

// request returns the question as a request for its shard.
func (q *question) request() (asked outage.Request) {
	asked.Rule, asked.Hash, asked.Key = q.rule.inOutage, q.key.hash, q.key.inRedis()
	asked.Cost, asked.Operation = q.cost, q.operation
	return asked
}

// inMemory decides by a lease or by a denial that this process remembers, if there is one.
func (q *question) inMemory(d *limit.Decision, now int64) (decided bool) {
	if q.rule.lease != nil && q.key.hold == nil && q.fromLease(d, now) {
		return true
	}
	return q.remembered(d, now)
}

// decide takes a question through all tiers. If it returns an error, d may not have been set.
func (q *question) decide(ctx context.Context, d *limit.Decision) (err error) {
	r := q.rule
	if r.slotTTL != 0 && q.operation == lua.Peek {
		_, *d, err = q.acquire(ctx, 1)
		return err
	}
	if err := r.check(ctx, q.key.original, q.cost); err != nil {
		return err
	}
	now := r.limiter.now()
	if q.inMemory(d, now) {
		return nil
	}
	s := q.shard()
	if !s.Breaker.Closed() {
		q.fallback(d, now, breaker.ErrOpen)
		return nil
	} else if s.Settling(r.inOutage) {
		return q.decideSettling(ctx, d)
	}
	return q.decideInRedis(ctx, s, d)
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
func (q *question) decideInRedis(ctx context.Context, s *outage.Shard, d *limit.Decision) error {
	x := q.exchange()
	err := s.DecideInto(ctx, &x.entry, &x.reply)
	err = q.answered(d, &x.reply, err)
	x.release()
	return err
}

// answered decides by Redis's answer, or by the outage policy if there is none.
func (q *question) answered(d *limit.Decision, reply *remote.Reply, err error) error {
	r := q.rule
	switch {
	case err == nil:
		if r.lease != nil && reply.Granted > 0 && q.key.hold == nil {
			r.limiter.leases.Granted(r.lease, q.key.hash, q.key.inRedis(), reply.Granted)
		}
		q.fromRedis(d, reply)
		return nil
	case !r.limiter.leavesToPolicy(err):
		return err
	}
	q.fallback(d, r.limiter.now(), err)
	return nil
}

// decideSettling decides while Redis does not know of all grants. Requests that are turned away because
// of overload reserve nothing, and need only a small stack.
func (q *question) decideSettling(ctx context.Context, d *limit.Decision) error {
	s := q.shard()
	if s.TurnsAway() {
		q.fallback(d, q.rule.limiter.now(), remote.ErrNoRoom)
		return nil
	}
	return q.decideByBoth(ctx, s, d)
}

// decideByBoth decides by Redis and by this instance's share of the limit. Both must agree (law 11).
func (q *question) decideByBoth(ctx context.Context, s *outage.Shard, d *limit.Decision) (err error) {
	asked := q.request()
	own, denial, ok := s.Reserve(&asked)
	if !ok {
		s.DelayDenied(ctx)
		*d = denial
		return nil
	}
	if q.operation == lua.TakeUpTo {
		q.cost = own.Units
	}
	x := q.exchange()
	func() {
		defer s.Release(&asked, own) // also if a hook of the client panics
		err = s.DecideInto(ctx, &x.entry, &x.reply)
	}()
	switch {
	case err == nil:
		q.fromRedis(d, &x.reply)
		d.Remaining = min(d.Remaining, own.Free)
	case q.rule.limiter.leavesToPolicy(err):
		q.fallback(d, q.rule.limiter.now(), err)
		err = nil
	}
	x.release()
	return err
}

// fallback decides without Redis, because asking it failed with err.
func (q *question) fallback(d *limit.Decision, now int64, err error) {
	asked := q.request()
	q.key.hold.decidedWithout(err)
	q.shard().Without(d, &asked, now, err)
}
