package tiered

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local/ledger"
	"github.com/tierlimit/tierlimit/remote"
)

// OutagePolicy says what a rule does while Redis cannot be reached. Its String method returns
// "approximate", "allow" or "deny".
type OutagePolicy = outage.Policy

const (
	// Approximate holds each instance to its share of the limit: what it granted itself in the last
	// window, and its part of what was free when Redis last answered. For a key that the instance does
	// not know, the share is the limit divided by the size of the fleet. Approximate is the default.
	Approximate = outage.Approximate
	// Allow lets everything through. It is for limits that protect fairness, not safety.
	Allow = outage.Allow
	// Deny lets nothing through. It is for limits that protect safety, such as limits on login attempts.
	Deny = outage.Deny
)

// OnOutage sets what the rule does while Redis cannot be reached; the default is
// [Approximate].
func OnOutage(p OutagePolicy) RuleOption {
	return option.Set(func(c *ruleConfig) { c.policy = p },
		p <= Deny, "outage policy %d, must be Approximate, Allow or Deny", p)
}

// State says who decides at the moment. Its String method returns "healthy", "outage" or
// "settling".
type State = outage.State

const (
	// Healthy means that Redis decides.
	Healthy = outage.Healthy
	// Outage means that Redis counts as lost, and the rules' outage policies decide.
	Outage = outage.Outage
	// Settling means that Redis does not know of all grants, because it is just back, has lost data, or
	// often misses the deadline. A request must fit both in Redis and in this instance's share of the
	// limit. Only for rules with the policy Allow, Redis decides alone.
	Settling = outage.Settling
)

// newShards makes the shards, which handle Redis's outages.
func (l *Limiter) newShards() *outage.Shards {
	instance := rand.Text()       // names this instance in Redis
	largest := l.config.fleetSize // 0 if not known
	if l.fleetFile != nil {
		largest = max(largest, l.fleetFile.read(time.Now()))
	}
	c := outage.Config{
		Context: l.ctx, Go: l.background.Go, Now: l.now, Deadline: l.config.deadline,
		ColdStart: ledger.ColdStart{Born: l.now(), Lasts: l.config.coldStart}, Assumed: cmp.Or(largest, assumedInstances), Largest: largest,
		Instance: instance, Ledger: l.ledger,
		Connect: func(s *outage.Shard, assumed int) (outage.Decider, outage.Membership) {
			b := remote.NewBatcher(l.script, l.batching, remote.Hooks{
				Begin: s.Breaker.Begin, Now: l.now, Shard: s.Index(),
				Trip: func(calls int, took time.Duration, err error) {
					l.metrics.trip(calls, took, err)
					s.TripEnded(took, err)
				},
			})
			return b, remote.NewFleet(b, l.keys, instance, outage.FleetTTL, assumed)
		},
		Hint:            func(err error) string { return tlsHint(l.client, err) },
		Explain:         l.explain,
		Joined:          l.joined,
		BeforeHeartbeat: l.script.ReturnIdleConnections,
		HeartbeatFailed: l.metrics.failedToAsk,
		Changed:         l.config.onStateChange,
		BreakerChanged:  l.slots.wake.Send,
		DataLost:        l.doubtSlots,
		Log:             l.log,
	}
	if node, ok := l.client.(*redis.Client); ok {
		c.Address = node.Options().Addr
	}
	if client, ok := l.client.(*redis.ClusterClient); ok {
		var before atomic.Pointer[remote.Masters]
		c.Masters = func(ctx context.Context) (*remote.Masters, error) {
			m, err := remote.MastersOf(ctx, client, before.Load())
			if err == nil {
				before.Store(m)
			}
			return m, err
		}
		c.Refresh = client.ReloadState
		c.MayHaveChanged = l.script.MayHaveChanged
		c.Slot = l.keys.Slot
	}
	if file := l.fleetFile; file != nil {
		c.Size = func(size int) {
			l.background.Go(func() { file.heard(size, time.Now()) }) // writing may be slow
		}
	}
	return outage.New(c)
}

// requestAbout returns a request for a shard about a key, without a cost.
func (r *Rule) requestAbout(key *callKey) outage.Request {
	return outage.Request{Rule: r.inOutage, Hash: key.hash, Key: key.inRedis()}
}

// leavesToPolicy reports whether an error of the Redis tier leaves the decision to the outage policy. All other
// errors are returned to the caller. It logs that a key cannot be read.
func (l *Limiter) leavesToPolicy(err error) bool {
	if errors.Is(err, remote.ErrUnreadable) {
		l.shards.Unreadable(err)
	}
	return !errors.Is(err, limit.ErrClosed) && !remote.IsCallers(err)
}
