package tiered

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/breaker"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// Request is one of several that are decided together by [Limiter.AllowAll].
type Request struct {
	Rule *Rule
	Key  string
	Cost int64
}

// AllowAll charges all requests or none (law 9): a tenant's quota and an endpoint's
// limit, say. It returns a decision for each; all of them are Allowed, or none is.
// Those that stood in the way have a RetryAfter, those that would have fitted have
// none. No two requests may be for the same rule and key. Rules on a dry run stand in
// nobody's way, see [DryRun].
//
// It takes one trip to Redis. On a Cluster requests for the same key share a slot;
// where keys lie in different slots they are charged one slot after the other, and
// refunded if a later one denies. In between, for the time of a trip, other requests
// may be denied for units that are then given back; never is more granted. Units
// whose refund is lost stay charged until they leave the window.
//
// Errors and deadline are those of [Rule.AllowN]; refunding may take as long again.
func (l *Limiter) AllowAll(ctx context.Context, requests ...Request) ([]limit.Decision, error) {
	for i := range requests {
		if requests[i].isDryRun() {
			return l.allowAllBesideDryRuns(ctx, requests)
		}
	}
	return l.allowAll(ctx, requests)
}

func (l *Limiter) allowAll(ctx context.Context, requests []Request) ([]limit.Decision, error) {
	decisions, err := l.decideAll(ctx, requests)
	for i, q := range requests {
		switch {
		case q.Rule == nil:
		case err != nil:
			q.Rule.metrics.fail(err)
		default:
			q.Rule.metrics.decisions.add(&decisions[i])
			q.Rule.watched(q.Key, &decisions[i])
		}
	}
	return decisions, err
}

func (l *Limiter) decideAll(ctx context.Context, requests []Request) ([]limit.Decision, error) {
	if err := l.checkAll(ctx, requests); err != nil {
		return nil, err
	}
	now := l.now()
	hashes := make([]uint64, len(requests))
	decisions := make([]limit.Decision, len(requests))
	known := false
	for i, q := range requests {
		hashes[i] = l.hasher.Hash(q.Key)
		decisions[i] = q.Rule.decision(limit.TierLocal)
		if d, ok := q.Rule.remembered(hashes[i], now, q.Cost); ok {
			decisions[i] = d
			known = true
		}
	}
	if known {
		return decisions, nil
	}
	err := breaker.ErrOpen
	if l.reachAll(requests) {
		undo, denied := l.reserveAll(requests, hashes)
		if denied != nil {
			return denied, nil
		}
		var replies []remote.Reply
		replies, err = l.chargeAll(ctx, requests)
		undo()
		if err == nil {
			for i, q := range requests {
				decisions[i] = q.Rule.fromRedis(&replies[i])
			}
			return decisions, nil
		}
		if !l.outage(err) {
			return nil, err
		}
	}
	return l.fallbackAll(requests, hashes, err), nil
}

// reachAll reports whether Redis counts as lost for none of the keys.
func (l *Limiter) reachAll(requests []Request) bool {
	for _, q := range requests {
		if !l.shardOf(q.Key).breaker.Closed() {
			return false
		}
	}
	return true
}

func (l *Limiter) checkAll(ctx context.Context, requests []Request) error {
	seen := make(map[string]bool, len(requests))
	for _, q := range requests {
		if q.Rule == nil || q.Rule.limiter != l {
			return fmt.Errorf("%w: a request's rule is nil or of another limiter", limit.ErrInvalidRule)
		}
		if err := q.Rule.check(ctx, q.Key, q.Cost); err != nil {
			return err
		}
		key := l.keys.Key(q.Rule.name, q.Key)
		if seen[key] {
			return fmt.Errorf("%w: rule %q and key %q come twice; add their costs up", limit.ErrInvalidRule, q.Rule.name, q.Key)
		}
		seen[key] = true
	}
	return nil
}

// chargeAll charges all or none in Redis.
func (l *Limiter) chargeAll(ctx context.Context, requests []Request) ([]remote.Reply, error) {
	entries := make([]remote.Entry, len(requests))
	for i, q := range requests {
		entries[i] = remote.Entry{Key: q.Key, Rule: q.Rule.encoded, Cost: q.Cost, Group: 1}
	}
	if _, oneNode := l.client.(*redis.Client); oneNode {
		return l.shard.batcher.DecideAll(ctx, entries)
	}
	return l.chargeSlotBySlot(ctx, entries)
}

// chargeSlotBySlot charges the entries of one slot after the other, and takes back
// what was charged as soon as a slot denies or fails.
func (l *Limiter) chargeSlotBySlot(ctx context.Context, entries []remote.Entry) ([]remote.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, l.config.deadline) // for all slots together (law 7)
	defer cancel()
	replies := make([]remote.Reply, len(entries))
	for i := range replies {
		replies[i].Status = remote.HeldBack
	}
	var charged []int
	for _, positions := range remote.BySlot(entries) {
		part := make([]remote.Entry, len(positions))
		for j, i := range positions {
			part[j] = entries[i]
		}
		partReplies, err := l.shardOf(part[0].Key).batcher.DecideAll(ctx, part)
		if err != nil {
			l.takeBack(entries, replies, charged)
			return nil, err
		}
		denied := false
		for j, i := range positions {
			replies[i] = partReplies[j]
			denied = denied || replies[i].Status != remote.Allowed
		}
		if denied {
			l.takeBack(entries, replies, charged)
			for _, i := range charged {
				replies[i].Status = remote.HeldBack
			}
			return replies, nil
		}
		charged = append(charged, positions...)
	}
	return replies, nil
}

// takeBack refunds charges, all at once so that it takes no longer than one. The
// caller's context may have ended: it is not used.
func (l *Limiter) takeBack(entries []remote.Entry, replies []remote.Reply, charged []int) {
	var refunds sync.WaitGroup
	for _, i := range charged {
		e := entries[i]
		e.Group = 0
		e.Operation, e.Charged, e.Stamp = lua.Refund, e.Cost, replies[i].Stamp
		refunds.Go(func() {
			if _, err := l.shardOf(e.Key).batcher.Decide(context.Background(), e); err != nil {
				l.log.warn("take back", "units of a request that was denied elsewhere could not be given back", "error", err)
			}
		})
	}
	refunds.Wait()
}

// fallbackAll decides without Redis: all or none again, and each by its own rule's
// outage policy.
func (l *Limiter) fallbackAll(requests []Request, hashes []uint64, err error) []limit.Decision {
	decisions := make([]limit.Decision, len(requests))
	all := true
	for i, q := range requests {
		decisions[i] = q.Rule.fallback(l.shardOf(q.Key), hashes[i], l.now(), q.Key, q.Cost, lua.Take, err)
		all = all && decisions[i].Allowed
	}
	if all {
		return decisions
	}
	for i, q := range requests {
		if d := &decisions[i]; d.Allowed {
			a := q.Rule.account(hashes[i], q.Key)
			a.Charged = mayBeCharged(err)
			l.ledger.Undo(&a, l.now(), q.Cost, true)
			d.Allowed, d.Granted, d.Remaining = false, 0, d.Remaining+q.Cost
		}
	}
	return decisions
}
